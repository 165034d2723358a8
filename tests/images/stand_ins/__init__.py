"""Images from Debian's packages, under the names of those that the Dockerfiles and docker-compose.yml name, for a machine that reaches no registry of images.

They hold what this repository relies on: Python with pip, PostgreSQL, Redis. Needs mmdebstrap.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from ..engine import Engine

HERE = Path(__file__).parent
PYTHON, POSTGRES, REDIS = "python:3.12-slim-bookworm", "postgres:15-bookworm", "redis:7-bookworm"
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
# As slim images are: without documentation, and without the packages that apt has downloaded.
SLIM = tuple(f"path-exclude=/usr/share/{folder}/*" for folder in ("doc", "info", "locale", "man"))
KEEP_NO_PACKAGES = 'DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb || true"; };'
# Programs where the image of Python has them, and the certificates that this machine trusts.
HOOKS = (
    f"echo '{KEEP_NO_PACKAGES}' > \"$1/etc/apt/apt.conf.d/docker-clean\"",
    *(f'echo {option} >> "$1/etc/dpkg/dpkg.cfg.d/slim"' for option in SLIM),
    'ln -s /usr/bin/python3 "$1/usr/local/bin/python"',
    'ln -s /usr/bin/pip3 "$1/usr/local/bin/pip"',
    'rm -f "$1"/usr/lib/python3*/EXTERNALLY-MANAGED',
    f'cp {CERTIFICATES} "$1{CERTIFICATES}"',
)


def make(engine: Engine) -> None:
    """Make those that are missing."""
    if not engine("images", "--quiet", PYTHON).strip():
        _python(engine)
    for name, file in ((POSTGRES, "postgres"), (REDIS, "redis")):
        engine.build(name, HERE / f"{file}.Dockerfile", "--network", "host", context=HERE)


def _python(engine: Engine) -> None:
    """Make a Debian with Python and pip."""
    with tempfile.TemporaryDirectory() as folder:
        made = f"{folder}/base.tar"
        hooks = [f"--customize-hook={hook}" for hook in HOOKS]
        options = [f"--dpkgopt={option}" for option in SLIM]
        packages = "--include=python3,python3-venv,python3-pip,ca-certificates"
        subprocess.run(
            ["mmdebstrap", "--quiet", "--variant=minbase", packages, *options, *hooks, "bookworm", made], check=True
        )
        variables = (f"PIP_CERT={CERTIFICATES}", f"NODE_EXTRA_CA_CERTS={CERTIFICATES}", "PIP_DEFAULT_TIMEOUT=180")
        changes = [word for variable in variables for word in ("--change", f"ENV {variable}")]
        engine("import", *changes, made, PYTHON)
