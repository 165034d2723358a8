"""The device where the models of this machine run."""

from __future__ import annotations

import subprocess
import sys

from ..errors import InvalidSetting

NO_DEVICE = "This machine has no device {device}, or no driver for it. Choose another one (HEADSCOPE_DEVICE, or device=): auto is the GPU if there is one."
COUNT = "import torch; print(torch.cuda.device_count() if torch.cuda.is_available() else 0)"


def resolve(setting: str) -> str:
    """Return the device that a setting means. Raises InvalidSetting for a GPU that this machine does not have.

    GPUs are counted in another process: CUDA cannot be used in children forked from a process that has initialised it.
    """
    if setting == "cpu":
        return setting
    command = [sys.executable, "-c", COUNT]
    gpus = int(subprocess.check_output(command, text=True))  # noqa: S603 - constant arguments
    if setting == "auto":
        return "cuda" if gpus else "cpu"
    if int(setting.partition(":")[2] or 0) >= gpus:
        raise InvalidSetting(NO_DEVICE.format(device=setting))
    return setting
