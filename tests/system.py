"""Install the system packages that the tests need and that are missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

# program -> Debian package
PACKAGES = {
    "chromium": "chromium",
    "curl": "curl",
    "git": "git",
    "bash": "bash",
    "redis-server": "redis-server",
    "pg_createcluster": "postgresql",
    "docker-compose": "docker-compose",
    "gcc": "gcc",
}
# Chromium without a window, in which visits to the page take a third less work. Not every distribution has it; then they are made in Chromium.
SHELL = "chromium-headless-shell"


def main() -> None:
    """Install the missing packages with apt-get, or exit with a list of them where there is no apt-get."""
    missing = [package for program, package in PACKAGES.items() if shutil.which(program) is None]
    if not missing:
        return
    if shutil.which("apt-get") is None:
        sys.exit(
            f"The tests need {', '.join(missing)}: install it with this system's package manager, then run make test again."
        )
    as_root = [] if os.geteuid() == 0 else ["sudo"]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # A machine that has just started may still be installing its own updates.
    apt = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=600"]

    def run(*arguments: str) -> None:
        command = [*as_root, *apt, *arguments]
        print(" ".join(command), flush=True)
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)

    run("update")
    known = subprocess.run(["apt-cache", "show", SHELL], capture_output=True, check=False).returncode == 0
    run("install", "-y", "--no-install-recommends", *missing, *([SHELL] if known else []))


if __name__ == "__main__":
    main()
