"""The jobs of effects: what heads do to a prediction of an analysed input."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..analysis.effect import Effect, compute
from ..analysis.effect_request import EffectRequest
from ..analysis.request import AnalysisRequest, versions
from ..errors import HeadscopeError, InvalidRequest
from ..jobs import Job, metrics
from ..models.jacobian_lens import read_jacobian_lens
from ..models.loading import Model
from ..store import Blobs, Results
from .study_jobs import ReportProgress

LENS_GONE = "The Jacobian lens is no longer stored. Upload its file again."

# Loads the model of a job by its name, for a type of numbers. Raises CorruptModel if its files changed since the job was accepted.
LoadAccepted = Callable[[Job, str, ReportProgress, str], Model]


class EffectJobs:
    """The jobs of effects. `parse` returns the analysis of a payload, with its image."""

    def __init__(
        self, results: Results, uploads: Blobs, load: LoadAccepted, parse: Callable[[str], AnalysisRequest]
    ) -> None:
        self._results, self._uploads, self._load, self._parse = results, uploads, load, parse

    def effect(self, job: Job, progress: ReportProgress) -> None:
        """Compute an effect and store it, unless it is already stored. Errors point to fields of the effect's request only."""
        if self._results.exists(job.id):
            return
        payload = json.loads(job.payload)
        request = EffectRequest.model_validate(payload["request"])
        try:
            found = self._compute(job, self._parse(json.dumps(payload["input"])), request, progress)
        except HeadscopeError as error:
            if error.pointer is not None and error.pointer.split("/")[1] not in EffectRequest.model_fields:
                error.pointer = None  # a field of the analysis
            elif error.pointer == "/method/heads" and request.heads is not None:
                error.pointer = "/heads"
            raise
        progress(1.0, "writing", "", force=True)
        maps = {} if found.maps is None else {request.method.name: found.maps}
        document: dict[str, Any] = {
            "kind_of": "effect",
            "versions": versions(),
            "analysis": payload["analysis"],
            "request": payload["request"],
            "result": found.to_document(),
            "shapes": {name: one.shape for name, one in maps.items()},
        }
        with self._results.writer(job.id, (job.id, job.run)) as writer:
            writer.open(document["shapes"])
            for name, layers in maps.items():
                for number, heads in enumerate(layers):
                    writer.write(name, number, 0, heads)
            metrics.add("written_bytes", writer.finish(document, {}))

    def _compute(self, job: Job, analysis: AnalysisRequest, request: EffectRequest, progress: ReportProgress) -> Effect:
        model = self._load(job, analysis.model, progress, analysis.dtype)
        progress(0.0, "forward", "")

        def step(fraction: float) -> None:
            progress(fraction, "forward", f"{request.method.name} of every head")

        return compute(
            model,
            analysis.input,
            request,
            kind=analysis.kind,
            dtype="float64" if analysis.dtype == "float64" else "float32",
            image=analysis.image is not None and model.facts.kind != "vision",
            step=step,
            matrices=self._matrices(request, model),
        )

    def _matrices(self, request: EffectRequest, model: Model) -> dict[int, Any] | None:
        """Return the matrices of the uploaded Jacobian lens by layer. Raises InvalidRequest."""
        if request.jacobian_lens is None:
            return None
        with tempfile.TemporaryDirectory(dir=self._uploads.staging) as folder:
            path = Path(folder) / "lens"
            if not self._uploads.copy(request.jacobian_lens, path):
                raise InvalidRequest(LENS_GONE, pointer="/jacobian_lens")
            return read_jacobian_lens(path, model.width)
