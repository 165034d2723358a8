"""Makes sure that the system has what the tests need beside Python: programs of its own packages. Installs those that are missing."""

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
    "docker-compose": "docker-compose",
}


def main() -> None:
    """Install what is missing, or say what to install."""
    missing = [package for program, package in PACKAGES.items() if shutil.which(program) is None]
    if not missing:
        return
    if shutil.which("apt-get") is None:
        sys.exit(
            f"The tests need {', '.join(missing)}: install it with this system's package manager, then run make test again."
        )
    as_root = [] if os.geteuid() == 0 else ["sudo"]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "update", "-qq"],
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing],
    ):
        print(" ".join(command), flush=True)
        subprocess.run([*as_root, *command], check=True, env=environment, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
