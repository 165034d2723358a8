"""Every method of the product on a device, beside the CPU: python -m tests.device cuda."""

from __future__ import annotations

import argparse
import sys

import torch

from .compare import MODELS, REAL, cases, differences


def main() -> None:
    """Print the largest difference per model and type, and every failure; exit with 1 if there is one."""
    parser = argparse.ArgumentParser("python -m tests.device", description=__doc__)
    parser.add_argument("device", nargs="?", default="cuda", help="such as cuda, cuda:1 or cpu")
    parser.add_argument(
        "models", nargs="*", default=[*MODELS, *REAL], help=f"of {', '.join([*MODELS, *REAL])}; default: all"
    )
    chosen = parser.parse_args()
    device = chosen.device
    print(torch.cuda.get_device_name(device) if device.startswith("cuda") else device, "torch", torch.__version__)
    failed = 0
    for case in cases(lambda module: module.to(device), chosen.models):
        found = list(differences(case))
        wrong = [one for one in found if one.wrong]
        failed += len(wrong)
        for dtype in dict.fromkeys(one.dtype for one in found):
            compared = [one for one in found if one.dtype == dtype]
            worst = max(compared, key=lambda one: one.apart)
            refused = sum(one.refused for one in compared)
            print(
                f"{case.name}, {dtype}: {len(compared) - refused} results and {refused} refusals, at most {worst.apart:.1e} ({worst.method})",
                flush=True,
            )
        for one in wrong:
            print(f"  WRONG {one.case}, {one.method}, {one.dtype}: {one.wrong}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
