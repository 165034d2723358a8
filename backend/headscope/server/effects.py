"""Effects on a server: a job for each, with the input of its analysis."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from .. import logs
from ..analysis import memory
from ..analysis.effect_request import EffectRequest, check_supported
from ..effects import EFFECTS
from ..errors import Unsupported
from ..jobs import LOCAL, JobDatabase, Limits, Work
from ..models import tokens
from ..models.catalog import Catalog
from ..models.facts import Facts
from ..settings import Settings
from ..store import Results, Stored
from ..store.map_file import Corrupt

PLAIN = "Effects are computed with softmax. Analyse the text with this mechanism."
EXACT = 'Effects are computed in float32 or float64. Analyse the text with dtype "float32".'


class Effects:
    """Admission of effects. Methods block; the API calls them in threads."""

    def __init__(
        self, settings: Settings, catalog: Catalog, results: Results, database: JobDatabase, wake: Callable[[], None]
    ) -> None:
        self._settings, self._catalog = settings, catalog
        self._results, self._database, self._wake = results, database, wake

    def submit(self, analysis: Stored, request: EffectRequest, owner: str | None = None) -> tuple[str, bool]:
        """Check and queue an effect on a finished analysis for `owner`, and return its id and whether its result was stored.

        Raises InvalidRequest, which includes BudgetExceeded, Unsupported, ModelError or QueueFull before anything is queued.
        """
        asked = analysis.document["request"]
        located = self._catalog.locate(asked["model"], pointer=None)
        self._catalog.check(located)
        texts = {"/against": request.against}
        texts |= {f"/reference/{number}": one for number, one in enumerate(request.reference or ())}
        for pointer, text in texts.items():
            if isinstance(text, str):
                tokens.check_text(text, pointer, self._settings.text_bytes)
        if asked["mechanism"]["name"] != "softmax":
            raise Unsupported(PLAIN)
        if asked["dtype"] not in ("float32", "float64"):
            raise Unsupported(EXACT)
        facts = self._catalog.facts(located)
        if facts is not None:
            self._check(facts, analysis.document, request)
        digest, of = located.digest(), analysis.manifest.id
        id_ = request.key(of, digest)
        if self._results.has(id_):
            if owner:
                self._database.grant(id_, owner)
            return id_, True
        payload = {"analysis": of, "request": request.model_dump(), "input": asked}
        work = Work(id_, json.dumps(payload), digest, owner=owner or LOCAL, request_id=logs.request_id(), kind="effect")
        limits = Limits(self._settings.max_queue, self._settings.user_queue if owner else None)
        self._database.enqueue([work], batch=of, limits=limits)
        self._wake()
        return id_, False

    def _check(self, facts: Facts, analysis: Mapping[str, Any], request: EffectRequest) -> None:
        """Raise Unsupported or BudgetExceeded for a model without predictions, and for a method that it or its input does not allow."""
        method, kind = EFFECTS[request.method.name], analysis["request"]["kind"]
        check_supported(method, facts, kind, "/method")
        _, _, queries, keys = analysis["shape"]
        memory.check_effect(method, facts.tower(kind), queries, keys, self._settings.job_bytes)

    def analysis_of(self, id_: str) -> str | None:
        """Return the id of the analysis that an effect is about; None for any other id."""
        job = self._database.get(id_)
        if job is not None:
            return str(json.loads(job.payload)["analysis"]) if job.kind == "effect" else None
        with suppress(Corrupt):  # without its job it cannot be computed again
            stored = self._results.get(id_)
            return stored.document.get("analysis") if stored else None
        return None
