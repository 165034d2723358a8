"""What a server accepts: a request becomes work for the queue, once everything that can be known without the model has been checked."""

from __future__ import annotations

import json

from tokenizers import Tokenizer

from . import budget
from .errors import CorruptModel, HeadscopeError
from .jobs import LOCAL, Work
from .models import safety, support, tokens
from .models.catalog import Catalog, Located, file_digest
from .models.facts import Facts
from .request import INPUT, AnalysisRequest, check_needs
from .settings import Settings


class Admission:
    """Checks requests against the catalogue and the limits of the settings."""

    def __init__(self, settings: Settings, catalog: Catalog) -> None:
        self._settings, self._catalog = settings, catalog
        self._tokenizers: dict[str, Tokenizer] = {}  # by digest of the file

    def work(
        self, request: AnalysisRequest, place: int | None = None, owner: str = LOCAL, request_id: str = ""
    ) -> Work:
        """The request as work. In a batch, at `place`, errors point into the inputs where that is where they come from.

        Raises InvalidRequest, Unknown, Unsupported, ModelError or BudgetExceeded.
        """
        try:
            located, count = self._check(request)
        except HeadscopeError as error:
            if place is not None and error.pointer is not None and error.pointer[1:] in INPUT:
                error.pointer = f"/inputs/{place}{error.pointer}"
            raise
        digest = located.digest()
        payload = request.model_dump_json() if request.image is None else json.dumps(request.record)
        return Work(request.key(digest), payload, digest, request.recipe(digest), count, owner, request_id)

    def _check(self, request: AnalysisRequest) -> tuple[Located, int | None]:
        """Where the model is, and how many tokens the input has, if that is known already."""
        limit = self._settings.text_bytes
        for text, pointer in ((request.text, "/text"), (request.text_pair, "/text_pair")):
            if text is not None:
                tokens.check_text(text, pointer, limit)
        located = self._catalog.locate(request.model)
        self._catalog.check(located)
        facts = self._catalog.facts(located)
        if facts is None:
            return located, None
        lacks = support.lacks(facts, request.kind)
        support.check_input(facts, request)
        check_needs(request.methods, lacks)
        return located, self._check_size(located, facts, request)

    def _check_size(self, located: Located, facts: Facts, request: AnalysisRequest) -> int | None:
        """Number of queries, where the tokens along both axes are known already. Raises TooManyTokens or BudgetExceeded."""
        tower = facts.tower(request.kind)
        first = self._count(located, facts, request)
        queries, keys = first, first
        if facts.kind == "encoder-decoder" and request.kind in ("decoder", "cross"):
            queries = len(request.target_ids) if request.target_ids is not None else None
            keys = first if request.kind == "cross" else queries
        if queries is None or keys is None:
            return None
        most = request.max_tokens
        if most is not None:
            queries, keys = min(queries, most), min(keys, most)
        tokens.check_length(queries, tower.max_tokens)
        planned = budget.plan(request, dict.fromkeys(range(tower.layers), tower.heads), queries, keys)
        budget.check(planned, min(self._settings.job_bytes, self._settings.quota_bytes))
        return queries

    def _count(self, located: Located, facts: Facts, request: AnalysisRequest) -> int | None:
        """Number of tokens of the (first) text, if the tokenizer's file is here; the worker counts again."""
        if facts.patches is not None:
            return facts.patches.tokens
        if request.token_ids is not None:
            return len(request.token_ids)
        path = located.folder / "tokenizer.json" if located.folder else None
        if path is None or not path.is_file() or request.text is None:
            return None
        digest = file_digest(path)
        if digest not in self._tokenizers:
            safety.read_json(path, safety.LARGEST_TOKENIZER)
            try:
                self._tokenizers[digest] = tokens.prepare(Tokenizer.from_file(str(path)))
            except Exception as error:  # tokenizers raises nothing more precise
                raise CorruptModel("The model's tokenizer can't be read.") from error
        tokenizer = self._tokenizers[digest]
        return len(
            tokenizer.encode(request.text)
            if request.text_pair is None or facts.kind == "encoder-decoder"
            else tokenizer.encode(request.text, request.text_pair)
        )
