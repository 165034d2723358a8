"""Headscope as a Python library: load a model, analyse a text, save and open the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import psutil
from pydantic import ValidationError

from .. import figures
from ..analysis import pipeline
from ..analysis.reader import Progress
from ..analysis.result import Array, MemorySink, Result
from ..core import words
from ..core.attention import ResultWarning
from ..core.tokens import Token
from ..errors import InvalidRequest
from ..models import loading
from ..models.catalog import NAME, Catalog
from ..models.images import pack
from ..models.loading import Model
from ..models.tokens import Grid
from ..query import Interpretation, Scene, SearchResult, Subject, find, heads_there, understand
from ..settings import Settings
from ..store import export
from ..studies.request import Against, StudyRequest
from ..studies.study import GIVEN, Data, Study, conduct, invalid, read
from .arguments import Method, choice, choices, number, numbers, request_of


@dataclass(frozen=True)
class GroupedMaps:
    """Maps by groups of tokens: `maps` lens -> [L, H, V, W], and what the groups along both axes are called."""

    maps: Mapping[str, Array]
    queries: list[str]
    keys: list[str]


@dataclass(frozen=True)
class Analysis:
    """One input through one model, as the library hands it out. Immutable; `id` names its content."""

    result: Result
    maps: Mapping[str, Array]  # lens -> [L, H, Q, K] float32
    digest: Callable[[], str] = field(repr=False)

    @property
    def id(self) -> str:
        """32 hexadecimal digits; the same model and request give the same."""
        return self.result.request.key(self.digest())

    @property
    def model(self) -> str:
        """Name of the model."""
        return self.result.request.model

    @property
    def mechanism(self) -> dict[str, Any]:
        """Name and parameters of the mechanism."""
        return dict(self.result.request.mechanism.model_dump())

    @property
    def tokens(self) -> list[Token]:
        """The tokens of the input."""
        return self.result.tokens

    @property
    def key_tokens(self) -> list[Token]:
        """The tokens along the key axis: the same ones, but for cross-attention."""
        return self.result.key_tokens

    @property
    def text(self) -> str | None:
        """What the offsets of the (encoder's) tokens count in; with `generate`, what the model wrote stands at its end."""
        return self.result.full_text

    @property
    def generated(self) -> int:
        """How many tokens at the end the model wrote itself."""
        return self.result.generated

    @property
    def grid(self) -> Grid | None:
        """Rows and columns of patches of an image, and their sizes in pixels."""
        return self.result.grid

    @property
    def picture(self) -> Array | None:
        """The image as the model sees it, scaled and cut: uint8 [height, width, 3]."""
        return self.result.picture

    @property
    def measures(self) -> dict[str, dict[str, Array]]:
        """Measure -> lens -> values, shaped as the measure declares."""
        return self.result.measures

    @property
    def layers(self) -> list[int]:
        """Which layers axis L holds."""
        return self.result.layers

    @property
    def heads(self) -> list[int]:
        """Which heads axis H holds."""
        return self.result.heads

    @property
    def warnings(self) -> list[ResultWarning]:
        """What to know before reading a map."""
        return self.result.warnings

    @property
    def logits(self) -> Array | None:
        """[Q, vocabulary] of the model's own head; only with keep_logits=True."""
        return self.result.logits

    def by(self, groups: Literal["word"] | Sequence[Sequence[int]] = "word") -> GroupedMaps:
        """The same maps with tokens read together: summed over the keys of a group, averaged over its queries.

        "word" joins the pieces of every word; special tokens stand alone. Groups of your own are lists of token numbers, in the order you want them; tokens
        in none of them stand alone behind. Raises InvalidRequest for a token that does not exist or is named twice, and for groups in cross-attention.

        >>> import headscope
        >>> a = headscope.analyze("minilm", "Tokenization matters.")
        >>> a.by("word").queries
        ['[CLS]', 'Tokenization', 'matters', '.', '[SEP]']
        """
        if groups == "word":
            (rows, queries), (columns, keys) = words.word_groups(self.tokens), words.word_groups(self.key_tokens)
            return GroupedMaps({lens: words.group(m, rows, columns) for lens, m in self.maps.items()}, queries, keys)
        if self.tokens != self.key_tokens:
            raise InvalidRequest("Cross-attention has two texts: only words can be grouped in it.")
        order, sizes, names = words.arrange(self.tokens, groups)
        maps = {lens: words.group(m[..., order, :][..., order], sizes, sizes) for lens, m in self.maps.items()}
        return GroupedMaps(maps, names, names)

    def find(self, where: str = "", lens: str = "weights") -> SearchResult:
        """The heads that satisfy a query, ranked, with the numbers that decided it.

        Measures that name no lens are read under `lens`. The measures must be in this analysis. Raises InvalidQuery, or Unknown.

        >>> import headscope
        >>> a = headscope.analyze("minilm", "The cat sat.", measures=("entropy", "patterns"))
        >>> [(found.layer, found.head) for found in a.find("entropy < 0.5 and layer < 2 limit 2").heads]
        [(0, 2), (0, 5)]
        """
        shape = (len(self.layers), len(self.heads))
        scales = (tile["scale"] for tile in self.result.tiles.values())
        computed = {name: list(by_lens) for name, by_lens in self.measures.items()}
        return find(
            Subject(
                self.layers,
                self.heads,
                heads_there(scales, shape),
                computed,
                lambda measure, of: self.measures[measure][of],
                lens,
            ),
            where,
        )

    def ask(self, sentence: str) -> Interpretation:
        """What a query or a sentence in plain English asks to see of this analysis, or the question to ask back. Raises InvalidQuery."""
        return understand(sentence, Scene(self.layers, self.heads, self.tokens, self.key_tokens))

    def figure(self, name: str, *, theme: figures.Theme = "light", **params: Any) -> Any:
        """A plotly figure of this analysis; headscope.FIGURES says which there are, their parameters and the measures they need.

        Raises Unknown, InvalidRequest, NotReady for a measure that was not computed, or Unsupported for a lens that was not read.

        >>> import headscope
        >>> a = headscope.analyze("minilm", "The cat sat.")
        >>> a.figure("entropy", layer=4).layout.xaxis.title.text
        'head of layer 4'
        """
        from plotly.graph_objects import Figure

        wanted = figures.named(name)
        try:
            chosen = wanted.params.model_validate(params)
        except ValidationError as error:
            raise invalid(error) from None
        held = figures.Held(self.result.to_document(), self.result.to_arrays())
        return Figure(wanted.drawn(held, chosen, theme).figure())

    @property
    def source(self) -> export.Source:
        """All of it, as exports read it."""
        return _MemorySource(self)

    def save(self, path: str | Path) -> None:
        """Write everything as one safetensors file with the document in its metadata; headscope.open reads it."""
        export.write_safetensors(self.source, Path(path))


def load(model: Any, tokenizer: Any = None, *, device: str | None = None) -> Model:
    """A model ready to be analysed.

    `model` is a catalogue name ("minilm"), a local directory, a hub id ("org/name"), or a PreTrainedModel that is in memory already, with its fast
    tokenizer as second argument or both as a pair (without one, analyse token_ids). `device` is "cpu", "cuda", ...; the GPU if there is one.

    Raises Unknown, ModelUnavailable, UnsafeModel, UnsafeWeights, CorruptModel or Unsupported.
    """
    if isinstance(model, Model):
        return model
    if isinstance(model, tuple) and len(model) == 2:
        model, tokenizer = model
    if not isinstance(model, (str, Path)):
        if not hasattr(model, "config"):
            raise InvalidRequest(
                "A model is a name, a folder, a model of transformers, or such a model and its tokenizer.",
                pointer="/model",
            )
        return loading.wrap(model, tokenizer)
    catalog = Catalog(Settings(hub="any"))
    name = str(model)
    folder = Path(name).expanduser()
    known = isinstance(model, str) and NAME.fullmatch(name) and name in catalog.names()
    located = (
        catalog.locate_folder(folder) if name and not known and folder.is_dir() else catalog.locate(name, pointer=None)
    )
    return loading.load(located, device)


def analyze(
    model: Any,
    text: str | None = None,
    text_pair: str | None = None,
    *,
    token_ids: Sequence[int] | None = None,
    image: Any = None,
    mechanism: Method | None = None,
    target_ids: Sequence[int] | None = None,
    lenses: Sequence[Method] = ("weights", "effective"),
    measures: Sequence[Method] = ("entropy",),
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    kind: Literal["self", "encoder", "decoder", "cross"] = "self",
    max_tokens: int | None = None,
    dtype: Literal["float32", "float64", "bfloat16", "float16"] = "float32",
    maps: bool = True,
    keep_logits: bool = False,
    generate: Mapping[str, Any] | None = None,
    pos: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
    progress: Progress = lambda fraction, stage, detail: None,
) -> Analysis:
    """One input through one model, read through some lenses.

    `model` is what load() gives, or what it takes. Without a `mechanism` it attends as it was trained, which is softmax for most models. The maps are float32
    [L, H, Q, K]; with maps=False only thumbnails and measures are kept.
    `layers` and `heads` choose some, counted from 0. `max_tokens` cuts the input, special tokens included.

    Raises a HeadscopeError whose `code` and `detail` say what is wrong and what to do.

    >>> import headscope
    >>> model = headscope.load("minilm")
    >>> a = headscope.analyze(model, "The cat sat.", measures=("entropy", "null_share"))
    >>> a.maps["effective"].shape
    (6, 12, 6, 6)
    """
    model = load(model)
    request = request_of(
        model=model.name[:200],
        text=text,
        text_pair=text_pair,
        token_ids=numbers(token_ids, "token_ids"),
        target_ids=numbers(target_ids, "target_ids"),
        image=None if image is None else pack(image),
        mechanism=mechanism,
        lenses=lenses,
        measures=measures,
        layers=numbers(layers, "layers"),
        heads=numbers(heads, "heads"),
        generate=generate,
        pos=None if pos is None else list(pos),
        labels=None if labels is None else list(labels),
        kind=kind,
        max_tokens=number(max_tokens),
        dtype=dtype,
        maps=maps,
    )
    sink = MemorySink()
    limit = int(psutil.virtual_memory().available * 0.9)
    # Files stay what they are, and there may be many; a model in memory may be another one when somebody asks.
    digest = None if model.source else model.digest
    result = pipeline.run(model, request, sink, limit=limit, progress=progress, keep_logits=keep_logits)
    return Analysis(result, sink.maps, lambda: digest or model.digest)


class _MemorySource:
    """An analysis in memory, as the export reads it."""

    def __init__(self, a: Analysis) -> None:
        self.document: dict[str, Any] = {**a.result.to_document(), "id": a.id}
        self.arrays: dict[str, Array] = a.result.to_arrays()
        self._maps = a.maps
        if a.logits is not None:
            self.arrays["logits"] = a.logits

    def maps(self, lens: str, layers: slice, heads: slice) -> Array:
        """[L', H', Q, K] float32."""
        return self._maps[lens][layers, heads]


def open(path: str | Path) -> Analysis:  # noqa: A001 - the interface's name
    """Read a file that Analysis.save or the server's export wrote. Raises InvalidRequest for any other file."""
    try:
        described, tensors = export.read_safetensors(Path(path))
        result, digest = Result.from_document(described, tensors), str(described.get("id", ""))
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidRequest("That is not a file that Headscope wrote.") from error
    return _Opened(
        result,
        {name.removeprefix("map/"): array for name, array in tensors.items() if name.startswith("map/")},
        lambda: digest,
    )


class _Opened(Analysis):
    """An analysis from a file, which keeps the id it had."""

    @property
    def id(self) -> str:
        return self.digest()


def study(
    model: Any,
    dataset: Data,
    against: Any = None,
    *,
    mechanism: Method | None = None,
    against_mechanism: Method | None = None,
    lenses: Sequence[Method] = ("weights", "effective"),
    measures: Sequence[Method] = ("entropy", "patterns", "special_tokens"),
    figures: Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
    limit: int | None = None,
    seed: int = 0,
    bad_rows: Literal["skip", "fail"] = "skip",
    max_tokens: int | None = None,
    kind: Literal["self", "encoder", "decoder", "cross"] = "self",
    checkpoint: str | Path | None = None,
    progress: Progress = lambda fraction, stage, detail: None,
) -> Study:
    """Many inputs through one model, or through two variants that are compared input by input; see Study for what comes of it.

    `dataset` is the name of a file (jsonl, csv, tsv, parquet, CoNLL, CoNLL-U, text), `hub:org/name/path`, or a list of texts, pairs, or mappings.
    `against` is the second model, `against_mechanism` the second mechanism, by default the first; where none is named, each model attends as it was trained. `against` may also
    be {"model": ..., "mechanism": ...}, as over REST.
    What `figures` need is added to lenses and measures. Chunks that are done are kept in the folder `checkpoint`.

    >>> import headscope
    >>> s = headscope.study("minilm", ["The cat sat.", "It rained all day."], measures=("entropy",))
    >>> s.stat("entropy").mean.shape
    (6, 12)
    """
    several = against is not None or against_mechanism is not None
    if isinstance(against, Mapping):
        if not against.keys() <= Against.model_fields.keys() or against_mechanism is not None:
            raise InvalidRequest("against names a model, a mechanism, or both.", pointer="/against")
        against, against_mechanism = against.get("model"), against.get("mechanism")
    elif against_mechanism is None:
        against_mechanism = mechanism
    first = load(model)
    second = first if against is None else load(against)
    name, other = first.name[:190], second.name[:190]
    if against is not None and name == other and first.digest != second.digest:
        other = f"{other} (2)"
    try:
        request = StudyRequest(
            dataset=str(dataset) if isinstance(dataset, (str, Path)) else GIVEN,
            model=name,
            mechanism=choice(mechanism),
            against=Against(model=other, mechanism=choice(against_mechanism)) if several else None,
            lenses=choices(lenses, "lenses"),
            measures=choices(measures, "measures"),
            figures=list(figures),
            columns=None if columns is None else dict(columns),
            limit=number(limit),
            seed=number(seed),
            bad_rows=bad_rows,
            max_tokens=number(max_tokens),
            kind=kind,
        )
        models = [first, second][: len(request.variants)]
        request = request.settled([each.facts.mechanism for each in models])
    except ValidationError as error:
        raise invalid(error) from None
    return conduct(
        models,
        read(dataset, columns, bad_rows),
        request,
        checkpoint=None if checkpoint is None else Path(checkpoint),
        limit=int(psutil.virtual_memory().available * 0.9),
        progress=progress,
    )
