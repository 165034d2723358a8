"""Effects on a server: a job for each, with the input of its analysis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..analysis import memory
from ..analysis.effect_request import EffectRequest, check_supported
from ..core.text import check_text
from ..effects import EFFECTS
from ..errors import Unsupported
from ..models.catalog import Catalog
from ..models.facts import Facts
from ..settings import Settings
from ..store import Stored
from .datasets import Datasets
from .job_queue import JobQueue

PLAIN = "Effects are computed with softmax. Analyse the text with this mechanism."
EXACT = 'Effects are computed in float32 or float64. Analyse the text with dtype "float32".'


class Effects:
    """Admission of effects. Methods block; the API calls them in threads."""

    def __init__(self, settings: Settings, catalog: Catalog, jobs: JobQueue, datasets: Datasets) -> None:
        self._settings, self._catalog, self._jobs, self._datasets = settings, catalog, jobs, datasets

    def submit(self, analysis: Stored, request: EffectRequest, owner: str | None = None) -> tuple[str, bool]:
        """Check and queue an effect on a finished analysis for `owner`, and return its id and whether its result was stored.

        Raises InvalidRequest, which includes BudgetExceeded, Unknown, Unsupported, ModelError or QueueFull before anything is queued.
        """
        asked = analysis.document["request"]
        located = self._catalog.locate(asked["model"], pointer=None)
        self._catalog.check(located)
        texts = {"/against": request.against}
        texts |= {f"/reference/{number}": one for number, one in enumerate(request.reference or ())}
        for pointer, text in texts.items():
            if isinstance(text, str):
                check_text(text, pointer, self._settings.text_bytes)
        if request.jacobian_lens is not None:
            memory.check_matrices(*self._datasets.find_lens(request.jacobian_lens, owner), self._settings.job_bytes)
        if asked["mechanism"]["name"] != "softmax":
            raise Unsupported(PLAIN)
        if asked["dtype"] not in ("float32", "float64"):
            raise Unsupported(EXACT)
        facts = self._catalog.facts(located)
        if facts is not None:
            self._check(facts, analysis.document, request)
        digest, of = located.digest(), analysis.manifest.id
        payload = {"analysis": of, "request": request.model_dump(), "input": asked}
        return self._jobs.submit("effect", request.key(of, digest), payload, digest, owner, batch=of)

    def _check(self, facts: Facts, analysis: Mapping[str, Any], request: EffectRequest) -> None:
        """Raise Unsupported or BudgetExceeded for a model without predictions, and for a method that it or its input does not allow."""
        method, kind = EFFECTS[request.method.name], analysis["request"]["kind"]
        check_supported(method, facts, kind, "/method")
        _, _, queries, keys = analysis["shape"]
        memory.check_effect(method, facts.tower(kind), queries, keys, self._settings.job_bytes)

    def analysis_of(self, id_: str) -> str | None:
        """Return the id of the analysis that an effect is about; None for any other id."""
        return self._jobs.find_field(id_, "effect", "analysis")
