"""The library's core: load a model, analyse inputs or a data set, save and open results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import psutil

from .. import figures
from ..analysis.predictions import top_predictions
from ..analysis.request import AnalysisRequest
from ..analysis.result import MemorySink, Result
from ..core import words
from ..core.arrays import Array
from ..core.lazy import LazyModule, go
from ..errors import InvalidRequest, Unknown
from ..models.catalog import GGUF, NAME, Catalog
from ..models.images import pack
from ..models.sentence_encoder import SentenceEncoder
from ..query import Interpretation, SearchResult, SearchSpace, SentenceContext, existing_heads, find, understand
from ..settings import Settings
from ..store import export
from ..studies.request import Against, StudyRequest
from .arguments import (
    Method,
    Output,
    check_theme,
    check_weights,
    choice,
    choices,
    count,
    items,
    number,
    numbers,
    outputs,
    request_of,
    texts,
    validating,
)
from .study import GIVEN, Data, Study, read_dataset, read_saved

if TYPE_CHECKING:
    from ..analysis import pipeline
    from ..analysis.reader import Progress
    from ..models import loading
    from ..models.loading import Model
    from ..studies import runner
else:  # they import transformers, which takes longer than everything else together
    pipeline = LazyModule("headscope.analysis.pipeline")
    loading = LazyModule("headscope.models.loading")
    runner = LazyModule("headscope.studies.runner")

# Bytes of the map of a head up to which maps are arrays, not computed from factors: that of 512 tokens.
SMALL_MAP = 4 * 512 * 512
# Longest name of a model in a study; what tells two models of one name apart fits behind it.
NAME_LENGTH = 190


@cache
def _encoder() -> SentenceEncoder:
    return SentenceEncoder(Settings())


@dataclass(frozen=True, eq=False)
class GroupedMaps:
    """Maps by groups of tokens: `maps` lens -> [L, H, V, W], and the names of the groups along both axes."""

    maps: Mapping[str, Array]
    queries: list[str]
    keys: list[str]


@dataclass(frozen=True, kw_only=True, eq=False)
class Analysis(Result):
    """The analysis of one input by one model. Immutable; `id` is derived from its content. See Result for the other attributes.

    Analyses with the same id are equal. They can be pickled, for instance to be sent to another process.
    """

    # lens -> [L, H, Q, K] float32; of more than 512 tokens, what is read is computed from factors, if these are smaller
    maps: Mapping[str, Array]
    compute_id: Callable[[], str] = field(repr=False)  # hashing a model's weights takes seconds

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, Analysis) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.id)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy what a file has: `compute_id` may refer to the model."""
        return _rebuild, (self.source,)

    @property
    def id(self) -> str:
        """32 hexadecimal digits, equal for the same model and request."""
        return self.compute_id()

    @property
    def model(self) -> str:
        """Name of the model."""
        return self.request.model

    @property
    def mechanism(self) -> dict[str, Any]:
        """Name and parameters of the mechanism."""
        return dict(self.request.mechanism.model_dump())

    @property
    def text(self) -> str | None:
        """The text that the offsets of the (encoder's) tokens refer to; with `generate`, it ends with the generated text."""
        return self.full_text

    @property
    def head_names(self) -> list[str]:
        """Names of the heads, such as 4.5, layer by layer."""
        return [f"{layer}.{head}" for layer in self.layers for head in self.heads]

    def by(self, groups: Literal["word"] | Sequence[Sequence[int]] = "word") -> GroupedMaps:
        """Return the maps with tokens grouped: summed over the keys of a group, averaged over its queries.

        "word" groups the tokens of every word; special tokens form their own groups. Custom groups are lists of token numbers, in any order; the remaining
        tokens follow, each on its own. Raises InvalidRequest for a token that does not exist or occurs twice, and for custom groups in cross-attention.

        >>> import headscope
        >>> a = headscope.analyze("minilm", "Tokenization matters.")
        >>> a.by("word").queries
        ['[CLS]', 'Tokenization', 'matters', '.', '[SEP]']
        """
        if isinstance(groups, str) and groups == "word":
            (rows, queries), (columns, keys) = words.word_groups(self.tokens), words.word_groups(self.key_tokens)
            return GroupedMaps({lens: words.group(m, rows, columns) for lens, m in self.maps.items()}, queries, keys)
        if self.tokens != self.key_tokens:
            raise InvalidRequest("Cross-attention has two texts, so only grouping by words is possible.")
        order, sizes, names = words.arrange(self.tokens, groups)
        maps = {lens: words.group(m, sizes, sizes, order) for lens, m in self.maps.items()}
        return GroupedMaps(maps, names, names)

    def find(self, where: str = "", lens: str = "weights") -> SearchResult:
        """Return the heads that match a query, ranked, with the values that it compares.

        `lens` applies to measures that name no lens. The measures must be in this analysis. Raises InvalidQuery, or Unknown.

        >>> import headscope
        >>> a = headscope.analyze("minilm", "The cat sat.", measures=("entropy", "patterns"))
        >>> [(found.layer, found.head) for found in a.find("entropy < 0.5 and layer < 2 limit 2").heads]
        [(0, 2), (0, 5)]
        """
        if lens != "weights":
            self._check_lens(lens)
        shape = (len(self.layers), len(self.heads))
        scales = (tile["scale"] for tile in self.tiles.values())
        computed = {name: list(by_lens) for name, by_lens in self.measures.items()}
        exists, values = existing_heads(scales, shape), lambda measure, of: self.measures[measure][of]
        return find(SearchSpace(self.layers, self.heads, exists, computed, values, lens, self._tiles_of), where)

    def ask(self, sentence: str) -> Interpretation:
        """Interpret a query or a sentence in plain English, or return a question if it is ambiguous. Raises InvalidQuery."""
        context = SentenceContext(self.layers, self.heads, self.tokens, self.key_tokens)
        return understand(sentence, context, _encoder())

    def _tiles_of(self, lens: str) -> Mapping[str, Array]:
        self._check_lens(lens)
        return self.tiles[lens]

    def _check_lens(self, lens: str) -> None:
        if lens not in tuple(self.tiles):  # it may be a value that cannot be looked up
            known = ", ".join(self.tiles)
            raise Unknown("lens", f"This analysis does not include that lens, but {known}.", pointer="/lens")

    def figure(self, name: str, *, theme: figures.Theme = "light", **params: Any) -> Any:
        """Return a plotly figure of this analysis. headscope.FIGURES lists the figures, with their parameters and required measures.

        Raises Unknown, InvalidRequest, NotReady for a measure that was not computed, or Unsupported for a lens that was not used.

        >>> import headscope
        >>> a = headscope.analyze("minilm", "The cat sat.")
        >>> a.figure("entropy", layer=4).layout.xaxis.title.text
        'head of layer 4'
        """
        declared = figures.find_figure(name)
        check_theme(theme)
        with validating():
            chosen = declared.params.model_validate(params)
        return go.Figure(declared.build(export.Flat(self.to_document(), self.to_arrays()), chosen, theme).figure())

    @property
    def source(self) -> export.Flat:
        """The whole analysis, in the form that exports take."""
        logits = {} if self.logits is None else {"logits": self.logits}
        return export.Flat({**self.to_document(), "id": self.id}, {**self.to_arrays(), **logits}, self.maps)

    def save(self, path: str | Path) -> None:
        """Save everything as a safetensors file with the document as metadata, to be read by headscope.open."""
        export.write_safetensors(self.source, Path(path))


def load(
    model: Any,
    tokenizer: Any = None,
    *,
    device: str | None = None,
    dtype: str = "float32",
    device_map: str | Mapping[str, Any] | None = None,
) -> Model:
    """Load a model for analysis.

    `model` is a catalogue name ("minilm"), a local directory, a GGUF file, a hub id ("org/name"), or a PreTrainedModel. The fast tokenizer of a PreTrainedModel is
    the second argument, or model and tokenizer are passed as a pair; without a tokenizer, analyse token_ids. `device` is "cpu", "cuda", ...; by default
    the GPU if there is one. Weights that are stored in `dtype` ("bfloat16" or "float16") stay so, in half the memory of float32: for analyses in that dtype.
    Those of a large model always stay as they are stored; analyses in float32 widen them one module at a time.
    For a model that is larger than a device, `device_map` is "auto", or maps names of its modules to devices: "cuda:0", "cpu", or "disk" for weights that are
    read whenever their module runs. A PreTrainedModel stays where it is.

    Raises Unknown, ModelUnavailable, UnsafeModel, UnsafeWeights, CorruptModel, Unsupported or InvalidRequest.
    """
    if isinstance(model, loading.Model):
        return model
    if device is not None and device_map is not None:
        raise InvalidRequest("Give device or device_map, not both.", pointer="/device_map")
    if isinstance(model, tuple) and len(model) == 2:
        model, tokenizer = model
    if not isinstance(model, (str, Path)):
        if device_map is not None:
            raise InvalidRequest(
                "device_map is for models that are loaded from files. Pass it to from_pretrained instead.",
                pointer="/device_map",
            )
        if not hasattr(model, "config"):
            raise InvalidRequest(
                "A model is a name, a folder, a PreTrainedModel of transformers, or a pair of PreTrainedModel and tokenizer.",
                pointer="/model",
            )
        return loading.wrap(model, tokenizer)
    catalog = Catalog(Settings(hub="any"))
    name = str(model)
    folder = Path(name).expanduser()
    known = isinstance(model, str) and NAME.fullmatch(name) and name in catalog.names()
    located = (
        catalog.locate_path(folder)
        if name and not known and (folder.is_dir() or (folder.suffix == GGUF and folder.is_file()))
        else catalog.locate(name, pointer=None)
    )
    catalog.check(located)
    check_weights(device, dtype)
    return loading.load(located, device, dtype=dtype, device_map=device_map)


def analyze(
    model: Any,
    text: str | None = None,
    text_pair: str | None = None,
    *,
    messages: Sequence[Mapping[str, str]] | None = None,
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
    predictions: int = 0,
    generate: Mapping[str, Any] | None = None,
    mask: Sequence[int] | None = None,
    pos: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
    progress: Progress = lambda fraction, stage, detail: None,
) -> Analysis:
    """Analyse one input with one model, under one mechanism and several lenses.

    `model` is the result of load(), or an argument of it. By default the model attends by the mechanism it was trained with, softmax for most models. The
    maps are float32 [L, H, Q, K]; with maps=False only thumbnails and measures are kept. Of more than 512 tokens, factors are kept if they are smaller: a map
    is then no numpy array, but an index of it gives one, for which only that window is computed. `layers` and `heads` select some, counted from 0. `max_tokens`
    truncates the input, counting special tokens. `messages` is a conversation, each message with its role (system, user or assistant) and its content,
    which the model's own chat template formats; tokens then have a `role`. `mask` replaces tokens, counted from 0, by the model's mask token. `predictions` is
    the number of most likely tokens, or classes, that a model with an output head predicts at every position.

    Raises a HeadscopeError, whose `code` and `detail` state the problem and what to do.

    >>> import headscope
    >>> model = headscope.load("minilm")
    >>> a = headscope.analyze(model, "The cat sat.", measures=("entropy", "null_share"))
    >>> a.maps["effective"].shape
    (6, 12, 6, 6)
    """
    model = load(model, dtype=dtype)
    request = request_of(
        model=model.name[:200],
        text=text,
        text_pair=text_pair,
        messages=items(messages, "messages"),
        token_ids=numbers(token_ids, "token_ids"),
        target_ids=numbers(target_ids, "target_ids"),
        image=None if image is None else pack(image),
        mechanism=mechanism,
        lenses=lenses,
        measures=measures,
        layers=numbers(layers, "layers"),
        heads=numbers(heads, "heads"),
        generate=generate,
        mask=numbers(mask, "mask"),
        pos=items(pos, "pos"),
        labels=items(labels, "labels"),
        kind=kind,
        max_tokens=number(max_tokens),
        dtype=dtype,
        maps=maps,
    )
    return _run(model, request, count(predictions, "predictions"), keep_logits, progress)


def _run(model: Model, request: AnalysisRequest, predictions: int, keep_logits: bool, progress: Progress) -> Analysis:
    """Run the request, and read the most likely tokens from the logits."""
    sink, keeps = MemorySink(), keep_logits or predictions > 0
    result = pipeline.run(
        model,
        request,
        sink,
        limit=_free_bytes(),
        progress=progress,
        keep_logits=keeps,
        keep="smaller",
        small_map=SMALL_MAP,
    )
    if predictions > 0 and result.logits is not None:
        found = top_predictions(model, result.logits, predictions)
        result = replace(result, predictions=found, logits=result.logits if keep_logits else None)
    # The digest of files is computed on demand; a model in memory may change, so its digest is computed now.
    # Not earlier: bitsandbytes rounds the scales of its weights when they are first used.
    digest = None if model.source else model.digest
    return Analysis(**vars(result), maps=sink.maps, compute_id=lambda: result.request.key(digest or model.digest))


def _free_bytes() -> int:
    """Return how much memory an analysis may take."""
    return int(psutil.virtual_memory().available * 0.9)


def open(path: str | Path) -> Analysis:  # noqa: A001 - the interface's name
    """Open a file written by Analysis.save or the server's export, under its original id. Raises InvalidRequest for any other file."""
    found = read_saved(path)
    if found.document.get("kind_of") == "study":
        raise InvalidRequest("This file is a study. Open it with headscope.Study.open.")
    try:
        return _rebuild(found)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidRequest("This file was not written by Headscope.") from error


def _rebuild(saved: export.Flat) -> Analysis:
    """Return the analysis that `source` describes. Raises ValueError, KeyError or TypeError for anything else."""
    result, id_ = Result.from_document(saved.document, saved.arrays), str(saved.document.get("id", ""))
    return Analysis(**vars(result), maps=saved.whole_maps, compute_id=lambda: id_)


def study(
    model: Any,
    dataset: Data,
    against: Any = None,
    *,
    mechanism: Method | None = None,
    against_mechanism: Method | None = None,
    lenses: Sequence[Method] = ("weights", "effective"),
    measures: Sequence[Method] = ("entropy", "patterns", "special_tokens"),
    effects: Sequence[Method] = (),
    target: Output | tuple[Output, Output] | None = None,
    position: int | None = None,
    reference: Sequence[str | Sequence[int]] | None = None,
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
    """Analyse many inputs with one model, or with two variants that are compared input by input.

    `dataset` is the path of a file (jsonl, csv, tsv, parquet, CoNLL, CoNLL-U, text), `hub:org/name/path`, or a list of texts, pairs, or mappings.
    `against` is the second model, and `against_mechanism` the second mechanism, by default the first one. Without a mechanism, each model attends as it was
    trained. `against` may also be {"model": ..., "mechanism": ...}, as in the REST interface. Lenses and measures that `figures` need are added. Finished
    chunks are kept in the folder `checkpoint`, from which an interrupted study is resumed.

    `effects` are methods of `effect` that judge every head by a prediction for each input. `target`, `position` and `reference` are those of `effect`; the
    mean over the texts of `reference`, for ablation, is computed once for up to 256 inputs. The target of a single input is in its column, or key, `target`,
    with `minus` for a token or class whose logit is subtracted, and `against` for the other text of patching.

    >>> import headscope
    >>> s = headscope.study("minilm", ["The cat sat.", "It rained all day."], measures=("entropy",))
    >>> s.stat("entropy").mean.shape
    (6, 12)
    """
    first = load(model)
    with validating():
        second, variant = _second_variant(first, mechanism, against, against_mechanism)
        request = StudyRequest(
            dataset=str(dataset) if isinstance(dataset, (str, Path)) else GIVEN,
            model=first.name[:NAME_LENGTH],
            mechanism=choice(mechanism),
            against=variant,
            lenses=choices(lenses, "lenses"),
            measures=choices(measures, "measures"),
            effects=choices(effects, "effects"),
            target=outputs(target),
            position=number(position),
            reference=texts(reference),
            figures=items(figures, "figures"),
            columns=choice(columns),
            limit=number(limit),
            seed=number(seed),
            bad_rows=bad_rows,
            max_tokens=number(max_tokens),
            kind=kind,
        )
        models = [first, second][: len(request.variants)]
        request = request.settled([each.facts.mechanism_of(request.kind) for each in models])
    rows, folder = read_dataset(dataset, columns, bad_rows), None if checkpoint is None else Path(checkpoint)
    summary, id_ = runner.run_study(models, rows, request, checkpoint=folder, limit=_free_bytes(), progress=progress)
    return Study(summary.document, summary.arrays, id_)


def _second_variant(
    first: Model, mechanism: Method | None, against: Any, against_mechanism: Method | None
) -> tuple[Model, Against | None]:
    """Return the second model of a study (or the first again), and the second variant of its request (or None)."""
    if against is None and against_mechanism is None:
        return first, None
    if isinstance(against, Mapping):
        if not against.keys() <= Against.model_fields.keys() or against_mechanism is not None:
            raise InvalidRequest("against names a model, a mechanism, or both.", pointer="/against")
        against, against_mechanism = against.get("model"), against.get("mechanism")
    elif against_mechanism is None:
        against_mechanism = mechanism
    second = first if against is None else load(against)
    name = second.name[:NAME_LENGTH]
    if second is not first and name == first.name[:NAME_LENGTH] and first.digest != second.digest:
        name = f"{name} (2)"
    return second, Against(model=name, mechanism=choice(against_mechanism))
