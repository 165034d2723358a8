"""Sweeps over all architectures, in processes of their own: one verdict for each, and why the others are left out."""

from __future__ import annotations

import signal
import traceback
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from typing import Any

from tests.support.preloaded import CONTEXT, MODULES

from .pictured_types import PICTURED

SECONDS = 60
WORKERS = 2


def sweep(
    model_types: list[str] | None = None, workers: int = WORKERS, *, pictured: list[str] | None = None
) -> dict[str, dict[str, Any]]:
    """Model type -> verdict as plain JSON, or {"left_out": reason}, or {"crashed": what went wrong in Headscope}.

    The verdicts on the types in `pictured`, by default all that are swept and can be, say under "image" what becomes of an image with a text.
    """
    from .build import types

    names = model_types or types()
    CONTEXT.set_forkserver_preload(MODULES)
    with ProcessPoolExecutor(workers, mp_context=CONTEXT, max_tasks_per_child=120) as pool:
        found = dict(zip(names, pool.map(one, names, chunksize=4), strict=True))
        families = [name for name in PICTURED if name in names] if pictured is None else pictured
        for name, verdict in zip(families, pool.map(one_with_image, families, chunksize=4), strict=True):
            found.setdefault(name, {}).update(verdict)
    return found


def one_with_image(model_type: str) -> dict[str, Any]:
    """What becomes of an image with a text. Never raises."""
    from headscope.models import support

    from .image_compare import judge

    _prepare()
    support._families = dict  # type: ignore[assignment]  # what is recorded must not decide what is found
    signal.alarm(SECONDS)
    try:
        return {"image": judge(model_type)}
    except Exception as error:  # noqa: BLE001 - as above
        return {"crashed": _where(error)}
    finally:
        signal.alarm(0)


def faults(found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Model type -> what must never be: maps that are not the model's own, or an error that is not Headscope's."""
    bad = {name: verdict.get("wrong") or verdict.get("crashed") for name, verdict in found.items()}
    bad |= {name: verdict["image"] for name, verdict in found.items() if verdict.get("image", "").startswith("wrong")}
    return {name: what for name, what in bad.items() if what}


def one(model_type: str) -> dict[str, Any]:
    """What becomes of one model type. Never raises."""
    from .build import OutOfScope, build

    _prepare()
    signal.alarm(SECONDS)
    try:
        built = build(model_type)
    except OutOfScope as reason:
        return {"left_out": str(reason)}
    except Exception as error:  # noqa: BLE001 - transformers raises whatever it likes about sizes that do not fit together
        return {"left_out": f"can't be built small: {type(error).__name__}"}
    finally:
        signal.alarm(0)
    return {
        "class": built.class_name,
        "takes": {"input_ids": "text", "pixel_values": "images"}[built.takes],
        **_judged(built),
    }


def _judged(built: Any) -> dict[str, Any]:
    from .compare import judge

    signal.alarm(SECONDS)
    try:
        return {name: value for name, value in asdict(judge(built)).items() if value is not None}
    except Exception as error:  # noqa: BLE001 - any error but Headscope's own is a bug, and is reported as a crash
        return {"crashed": _where(error)}
    finally:
        signal.alarm(0)


def _where(error: Exception) -> str:
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {str(error)[:200]} ({place.filename.rpartition('/')[2]}:{place.lineno})"


def _prepare() -> None:
    import torch
    import transformers

    def late(*_: object) -> None:
        raise TimeoutError("too slow")

    signal.signal(signal.SIGALRM, late)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
