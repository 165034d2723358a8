"""Admission: validates requests against everything that is known without loading the model, and turns them into work for the queue."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from cachetools import LRUCache
from tokenizers import Tokenizer

from ..analysis import memory
from ..analysis.request import INPUT, AnalysisRequest, check_capabilities
from ..core.text import check_text
from ..effects.quantities import JUDGES
from ..errors import CorruptModel, HeadscopeError, Unsupported
from ..jobs import LOCAL, Work
from ..models import conversation, safety, support, tokens
from ..models.catalog import Catalog
from ..models.facts import Facts
from ..models.located import Located, file_digest
from ..models.trained_mechanism import SOFTMAX
from ..settings import Keep, Settings
from ..studies.request import StudyRequest, check_effects

# Tokenizers that stay in memory: with HEADSCOPE_HUB=any users may name any number of models.
MOST_TOKENIZERS = 16


class Admission:
    """Checks of requests against the catalogue and the limits of the settings."""

    def __init__(self, settings: Settings, catalog: Catalog) -> None:
        self._settings, self._catalog = settings, catalog
        self._tokenizers = LRUCache[str, Tokenizer](MOST_TOKENIZERS)  # by digest of the file
        self._lock = threading.Lock()

    def prepare(self, model: str) -> None:
        """Read what the first request for a model needs of its files, if they are on this machine. Raises Unknown or CorruptModel."""
        located = self._catalog.locate(model, pointer=None)
        if located.local:
            located.digest()
            self._tokenizer(located)

    def admit(
        self, request: AnalysisRequest, place: int | None = None, owner: str = LOCAL, request_id: str = ""
    ) -> Work:
        """Check a request, and return it as work. `place` is its index in a batch, to which the pointers of errors are adapted.

        Raises InvalidRequest, Unknown, Unsupported, ModelError or BudgetExceeded.
        """
        try:
            request, located, count = self._check(request)
        except HeadscopeError as error:
            if place is not None and error.pointer is not None and error.pointer.split("/")[1] in INPUT:
                error.pointer = f"/inputs/{place}{error.pointer}"
            raise
        digest = located.digest()
        payload = request.model_dump_json() if request.image is None else json.dumps(request.record)
        return Work(request.key(digest), payload, digest, request.recipe(digest), count, owner, request_id)

    def _check(self, request: AnalysisRequest) -> tuple[AnalysisRequest, Located, int | None]:
        """Return the request with its mechanism, the location of the model, and the number of tokens if it is known."""
        limit = self._settings.text_bytes
        for text, pointer in ((request.text, "/text"), (request.text_pair, "/text_pair")):
            if text is not None:
                check_text(text, pointer, limit)
        if request.messages is not None:
            conversation.check(request.messages, limit)
        located, facts = self._locate(request.model)
        request = request.settled(facts.mechanism if facts else SOFTMAX)
        if facts is None:
            return request, located, None
        _check_supported(facts, request)
        if request.messages is not None and located.lacks_template():
            raise Unsupported(conversation.NO_TEMPLATE, pointer=conversation.POINTER)
        return request, located, self._check_size(located, facts, request)

    def _locate(self, model: str) -> tuple[Located, Facts | None]:
        """Locate a usable model, and return what is known about it before it is loaded."""
        located = self._catalog.locate(model)
        return located, self._catalog.check(located)

    def admit_study(self, request: StudyRequest) -> tuple[StudyRequest, list[str], Tokenizer | None]:
        """Return the request with its mechanisms, the models' digests, and the first model's tokenizer if its file is on this machine.

        No input is known yet, so everything checked here holds for all of them. Raises Unknown, Unsupported or ModelError.
        """
        pair = (
            {"text_pair": "-"} if request.kind in ("decoder", "cross") else {}
        )  # whether a row has one is checked later
        known = list[tuple[Located, Facts | None]]()
        for number, one in enumerate(request.variants):
            with _of_variant(number):
                known.append(self._locate(one.model))
        request = request.settled([facts.mechanism if facts else SOFTMAX for _, facts in known])
        for number, ((_, facts), variant) in enumerate(zip(known, request.requests, strict=True)):
            if facts is not None:
                with _of_variant(number):
                    support.check_text_model(facts)
                    _check_supported(facts, variant.model_copy(update=pair))
                check_effects(facts, request, variant)
        return request, [located.digest() for located, _ in known], self._tokenizer(known[0][0])

    def check_study_size(self, request: StudyRequest, tokens: int) -> None:
        """Raise BudgetExceeded if an input of that many tokens would not fit. Inputs longer than the model takes fail one by one."""
        for one in request.requests:
            facts = self._catalog.facts(self._catalog.locate(one.model))
            if facts is not None:
                longest = min(tokens, facts.tower(one.kind).max_tokens or tokens)
                self._check_fits(facts, one, longest, longest, keep="maps")
                for choice in request.judges:
                    method, tower = JUDGES[choice.name], facts.tower(one.kind)
                    memory.check_effect(method, tower, longest, longest, self._settings.job_bytes)

    def _check_size(self, located: Located, facts: Facts, request: AnalysisRequest) -> int | None:
        """Return the number of queries if the tokens along both axes are known. Raises TooManyTokens or BudgetExceeded."""
        tower = facts.tower(request.kind)
        first = self._count_tokens(located, facts, request)
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
        self._check_fits(facts, request, queries, keys, self._settings.keep)
        return queries

    def _check_fits(self, facts: Facts, request: AnalysisRequest, queries: int, keys: int, keep: Keep) -> None:
        """Raise BudgetExceeded unless memory and disk suffice."""
        tower = facts.tower(request.kind)
        counts = dict.fromkeys(range(tower.layers), tower.heads)
        planned = memory.plan(request, counts, queries, keys, keep=keep, width=tower.head_width)
        memory.check(planned, min(self._settings.job_bytes, self._settings.quota_bytes))

    def _count_tokens(self, located: Located, facts: Facts, request: AnalysisRequest) -> int | None:
        """Return the number of tokens of the (first) text if the tokenizer's file is on this machine; the worker counts again."""
        if facts.patches is not None:
            return facts.patches.tokens
        if request.token_ids is not None:
            return len(request.token_ids)
        tokenizer = self._tokenizer(located) if request.text is not None else None
        if tokenizer is None:
            return None
        return len(
            tokenizer.encode(request.text)
            if request.text_pair is None or facts.kind == "encoder-decoder"
            else tokenizer.encode(request.text, request.text_pair)
        )

    def _tokenizer(self, located: Located) -> Tokenizer | None:
        """Return the tokenizer of a model if its file is on this machine. Raises CorruptModel."""
        path = located.folder / "tokenizer.json" if located.folder else None
        if path is None or not path.is_file():
            return None
        digest = file_digest(path)
        with self._lock:
            if digest not in self._tokenizers:
                safety.read_json(path, safety.LARGEST_TOKENIZER)
                try:
                    self._tokenizers[digest] = tokens.prepare(Tokenizer.from_file(str(path)))
                except Exception as error:  # tokenizers raises nothing more precise
                    raise CorruptModel("The model's tokenizer cannot be read.") from error
            return self._tokenizers[digest]


@contextmanager
def _of_variant(number: int) -> Iterator[None]:
    """Let errors about the model and mechanism of the second variant of a study point to these."""
    try:
        yield
    except HeadscopeError as error:
        if number and error.pointer in ("/model", "/mechanism"):
            error.pointer = f"/against{error.pointer}"
        raise


def _check_supported(facts: Facts, request: AnalysisRequest) -> None:
    """Raise InvalidRequest or Unsupported for an input or method that the model does not support."""
    missing = support.find_missing(facts, request.kind)
    support.check_input(facts, request)
    check_capabilities(request.methods, missing)
