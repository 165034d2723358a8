"""The tools. Their docstrings are what a language model reads to choose one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Annotated, Any, Literal

import anyio.from_thread
from mcp.server.mcpserver import Context
from pydantic import Field

import headscope

from ..analysis.reader import Progress
from ..core import words
from ..core.arrays import Array
from ..core.declarations import Declaration
from ..errors import InvalidRequest, Unknown
from ..figures import find_figure
from ..figures.figure import Drawing
from ..figures.studies import build_table
from ..figures.studies import find_figure as find_study_figure
from ..lenses import LENSES
from ..library.arguments import validating
from ..measures.edges import Rule, find_strongest
from ..models.catalog import Catalog
from ..settings import Settings
from ..studies.results.table_files import ResultTable
from .workspace import Workspace

Kind = Literal["mechanisms", "lenses", "measures", "effects", "batteries", "figures", "study_figures"]
METHODS: dict[Kind, Callable[[], Any]] = {
    "mechanisms": lambda: headscope.MECHANISMS,
    "lenses": lambda: headscope.LENSES,
    "measures": lambda: headscope.MEASURES,
    "effects": lambda: headscope.EFFECTS,
    "batteries": lambda: headscope.BATTERIES,
    "figures": lambda: headscope.FIGURES,
    "study_figures": lambda: headscope.STUDY_FIGURES,
}
# Columns of a table in an answer: with the longest names, a row of so many fits.
MOST_COLUMNS = 200
# What some methods give beside the effects of heads.
OF_EFFECTS = ("together", "parts", "completeness_error", "score")
CARD = ("name", "title", "kind", "layers", "heads", "max_tokens", "predicts", "local")

# Types of arguments. A method with parameters is an object.
Method = str | dict[str, Any]
Model = Annotated[str, Field(description="Name from list_models, a local folder or GGUF file, or a hub id.")]
AnalysisId = Annotated[str, Field(description="The id that analyze returned.")]
ResultId = Annotated[str, Field(description="The id that analyze or study returned.")]
Limit = Annotated[int, Field(ge=1, le=500, description="Entries per list in the answer, the most important first.")]
Lenses = Annotated[
    list[Method], Field(description='Lenses: names, or objects such as {"name": "rollout", "residual": 0.5}.')
]
Measures = Annotated[list[Method], Field(description="Measures: names, or objects with name and parameters.")]
Mechanism = Annotated[
    Method | None,
    Field(
        description='How the model attends, such as {"name": "hopfield", "alpha": 0.3}. By default as it was trained.'
    ),
]
Target = Annotated[
    str | int | list[str | int] | None,
    Field(
        description='A token, such as " Paris", with its space, or its number, or two in a list for the difference of their logits. '
        "By default the model's own choice."
    ),
]
TextPair = Annotated[str | None, Field(description="A second text: of models that read pairs, or of a decoder.")]
Position = Annotated[
    int | None, Field(description="Token at which the model predicts, from 0, or from the end if negative.")
]
EffectMethod = Annotated[
    Method,
    Field(
        description='"contribution" (what a head writes on the direct path), "ablation" (what is lost without it), "patching" (what it carries of the difference '
        'to the text `against`), or another one of describe_methods("effects"); an object for parameters.'
    ),
]


class Tools:
    """The tools of one conversation."""

    def __init__(self) -> None:
        self._workspace = Workspace()

    @property
    def all(self) -> list[Callable[..., dict[str, Any]]]:
        """The tools, in the order in which they are listed."""
        return [
            self.list_models, self.describe_methods, self.analyze, self.find_heads, self.read_edges, self.head_scores,
            self.effect, self.study, self.figure, self.table,
        ]  # fmt: skip

    def list_models(self, limit: Limit = 50) -> dict[str, Any]:
        """List the transformer models that can be analysed, with their number of layers and of heads per layer.

        `local` models are on this machine; others are downloaded on first use. Effects need a model whose `predicts` is not null (unknown until it is local).
        """
        catalog = Catalog(Settings(hub="any"))
        cards = [card for card in map(catalog.describe, catalog.listed()) if card["available"]]
        return {"models": [{name: card[name] for name in CARD} for card in cards]}

    def describe_methods(
        self,
        kind: Kind,
        name: Annotated[str | None, Field(description="One method, for its parameters and source.")] = None,
        limit: Limit = 100,
    ) -> dict[str, Any]:
        """Describe what can be asked for. Without `name`: every method of a kind in a sentence.

        mechanisms: how a model attends (softmax, hopfield, ablate ...). lenses: how attention is read (weights, effective, norm, rollout ...). measures: numbers per
        head (entropy, patterns, head_roles ...). effects: what a head does to a prediction. batteries: tests of what heads are for (induction ...). figures, and
        study_figures: charts of an analysis and of a study.
        """
        methods = METHODS[kind]()
        if name is None:
            return {kind: [{"name": each, "what": method.doc} for each, method in methods.items()]}
        if name not in methods:
            raise InvalidRequest(f"There is no such method. Choose one of: {', '.join(methods)}.")
        method = methods[name]
        if isinstance(method, Declaration):
            return method.describe()
        return {"name": name, "doc": method.doc, "not": method.not_, "citation": method.citation}

    def analyze(
        self,
        model: Model,
        text: Annotated[str, Field(description="The text to run through the model.")],
        context: Context,
        text_pair: TextPair = None,
        lenses: Lenses = ["weights", "effective"],  # noqa: B006 - a default that the schema shows
        measures: Measures = ["entropy", "patterns", "head_roles"],  # noqa: B006
        mechanism: Mechanism = None,
        max_tokens: Annotated[int | None, Field(ge=1, description="Truncate the text to this many tokens.")] = None,
        limit: Limit = 100,
    ) -> dict[str, Any]:
        """Run one text through a model, and keep the attention maps of all heads. Returns an id for find_heads, read_edges and figure, and the tokens.

        `warnings` say what to know before reading a map, for example that the lens `effective` is identical to the weights here. A map shows where a head looks,
        not what it does: see `effect`.
        """
        a = headscope.analyze(
            self._workspace.model(model), text, text_pair, lenses=lenses, measures=measures, mechanism=mechanism,
            max_tokens=max_tokens, progress=_report(context),
        )  # fmt: skip
        return {
            "analysis": self._workspace.keep(a),
            "model": a.model,
            "mechanism": a.mechanism,
            "layers": len(a.layers),
            "heads": len(a.heads),
            "lenses": list(a.maps),
            "measures": list(a.measures),
            "warnings": [warning.as_dict() for warning in a.warnings],
            "number_of_tokens": len(a.tokens),
            "tokens": [token.text for token in a.tokens],
        }

    def find_heads(
        self,
        result: ResultId,
        where: Annotated[
            str,
            Field(
                description="A query, such as `head_roles.induction_matched > 0.4`, `vertical and layer < 4 and entropy < 1`, `entropy@effective > 2`, or "
                "`order by null_share desc limit 5`. Empty: all heads."
            ),
        ] = "",
        lens: Annotated[str, Field(description="Lens of the measures in the query that do not name one.")] = "weights",
        limit: Limit = 20,
    ) -> dict[str, Any]:
        """Find the heads of an analysis, or by their means over the inputs of a study, that satisfy a query; best first, with the numbers that decided.

        A query compares measures that were computed (`entropy`, or a column such as `head_roles.previous`), `layer`, `head`, and classes of the measure patterns
        (`vertical`, `diagonal`, `vertical+diagonal`, `block`, `heterogeneous`), joined by `and`, `or`, `not`. Heads are layer.head, both counted from 0.
        """
        found = self._workspace.result(result).find(where, lens)
        return {
            "query": found.query,
            "ranked_by": found.ranked_by,
            "direction": found.direction,
            "searched": found.of,
            "matches": len(found.heads),
            "heads": [{"head": f"{match.layer}.{match.head}", **match.values} for match in found.heads],
        }

    def read_edges(
        self,
        analysis: AnalysisId,
        layer: Annotated[int, Field(ge=0)],
        head: Annotated[int, Field(ge=0)],
        lens: Annotated[str, Field(description="A lens of the analysis.")] = "weights",
        rule: Annotated[
            Rule,
            Field(
                description="top-k: the k strongest keys of each query. mass: the fewest keys that hold that share of each query's attention. mean+std: "
                "entries above mean plus standard deviation. value: entries of at least that magnitude."
            ),
        ] = "top-k",
        k: Annotated[int, Field(ge=1)] = 1,
        mass: Annotated[float, Field(gt=0, le=1)] = 0.7,
        value: Annotated[float, Field(ge=0)] = 0.1,
        by_word: Annotated[
            bool, Field(description="Merge the pieces of words: summed over keys, averaged over queries.")
        ] = False,
        query: Annotated[
            int | None, Field(ge=0, description="Only what this token, or word, attends to, counted from 0.")
        ] = None,
        limit: Limit = 40,
    ) -> dict[str, Any]:
        """Read the map of one head as connections: the query token attends to the key token with that weight. Strongest first."""
        grid, queries, keys = _read_map(self._workspace.analysis(analysis), lens, layer, head, by_word)
        first, rows = (0, grid) if query is None else (query, grid[query : query + 1])
        if not len(rows):
            raise InvalidRequest(f"The last query is {len(queries) - 1}.")
        blocks, ties = [(first, rows)], LENSES[lens].shows == "ties"
        found = find_strongest(lambda: iter(blocks), rule, limit, k=k, mass=mass, value=value, unmasked=ties)
        edges = [
            {"query": row, "key": column, "from": queries[row], "to": keys[column], "weight": weight}
            for (row, column), weight in zip(found.pairs.tolist(), found.weights.tolist(), strict=True)
        ]
        more = [f"edges: the first {limit} of {found.total} are shown."] if found.total > limit else []
        return {"head": f"{layer}.{head}", "lens": lens, "edges": edges, "left_out": more}

    def head_scores(
        self,
        model: Model,
        battery: Annotated[
            str, Field(description='One of describe_methods("batteries"): induction, previous-token, retrieval ...')
        ],
        context: Context,
        prompts: Annotated[int, Field(ge=1, le=1000, description="Number of random prompts.")] = 20,
        seed: Annotated[int, Field(ge=0)] = 0,
        limit: Limit = 10,
    ) -> dict[str, Any]:
        """Test what every head of a causal language model is for, on prompts made at random of the model's own tokens for which the right answer is known.

        Returns the heads with the largest scores (0 to 1), and beside each its control: what it would get by chance. A head whose score is far above its control
        plays that role on random text; whether the model uses it for a prediction is what `effect` tells.
        """
        found = headscope.head_scores(
            self._workspace.model(model), [battery], prompts=prompts, seed=seed, progress=_report(context)
        )
        heads = found.top(battery, found.scores[battery].size)
        return {
            "battery": battery,
            "prompts": prompts,
            "heads": [{"head": head, "score": score, "control": control} for head, score, control in heads],
        }

    def effect(
        self,
        model: Model,
        text: Annotated[
            str, Field(description="The text after whose last token (or at whose masked one) the model predicts.")
        ],
        target: Target = None,
        method: EffectMethod = "contribution",
        heads: Annotated[
            list[str] | None,
            Field(
                description="For ablation and patching: only these heads, as layer.head, each alone, and all of them at once (`together`)."
            ),
        ] = None,
        against: Annotated[str | None, Field(description="The other text of patching, of as many tokens.")] = None,
        reference: Annotated[
            list[str] | None,
            Field(description='Texts for ablation with `how` "reference", over which heads are averaged.'),
        ] = None,
        position: Position = None,
        mask: Annotated[
            list[int] | None,
            Field(description="Tokens, from 0, to replace by the mask token, for models that fill in masks."),
        ] = None,
        text_pair: TextPair = None,
        kind: Annotated[
            Literal["self", "decoder", "cross"],
            Field(
                description="Which heads of an encoder-decoder: those of its decoder by default, or its cross-attention."
            ),
        ] = "self",
        limit: Limit = 20,
    ) -> dict[str, Any]:
        """Measure what every head does to a prediction, in logits: positive if the target is more likely with the head.

        Returns the most likely tokens, the value of the target, and the heads with the largest effects, whatever their sign, with whatever else the method gives.
        With `heads`, ablation also says what the model predicts without all of them.
        """
        chosen = {"name": method} if isinstance(method, str) else dict(method)
        if heads is not None and "heads" in chosen:
            raise InvalidRequest("Give heads once, beside the method or in it.", pointer="/heads")
        e = headscope.effect(
            self._workspace.model(model), text, text_pair, target=tuple(target) if isinstance(target, list) else target,  # type: ignore[arg-type]
            method=chosen if heads is None else {**chosen, "heads": heads}, against=against, reference=reference,
            position=position, mask=mask, kind=kind,
        )  # fmt: skip
        document = e.to_document()
        of_head = {
            f"{layer}.{head}": {
                name: document[name][i][j] for name in ("shares", "writes", "sources") if document[name]
            }
            for (i, layer), (j, head) in product(enumerate(e.layers), enumerate(e.heads))
        }
        return {
            **{name: document[name] for name in ("model", "method", "target", "predictions", "baseline")},
            "heads": [{"head": head, "effect": value, **of_head[head]} for head, value in e.top(e.effects.size)],
            **{name: document[name] for name in OF_EFFECTS if document[name]},
        }

    def study(
        self,
        model: Model,
        texts: Annotated[
            list[str] | str,
            Field(description="The texts, or the path of a file: jsonl, csv, tsv, parquet, CoNLL or text."),
        ],
        context: Context,
        lenses: Lenses = ["weights"],  # noqa: B006
        measures: Measures = ["entropy", "patterns", "head_roles"],  # noqa: B006
        effects: Annotated[list[Method], Field(description="Methods of `effect` for every text.")] = [],  # noqa: B006
        target: Target = None,
        position: Position = None,
        inputs: Annotated[int | None, Field(ge=1, description="Most texts to read, drawn at random.")] = None,
        limit: Limit = 20,
    ) -> dict[str, Any]:
        """Run many texts through a model, and average the measures of every head over them: what holds in general, not in one sentence.

        Returns an id for find_heads, figure and table.
        """
        s = headscope.study(
            self._workspace.model(model), texts, lenses=lenses, measures=measures, effects=effects,
            target=tuple(target) if isinstance(target, list) else target,  # type: ignore[arg-type]
            position=position, limit=inputs, progress=_report(context),
        )  # fmt: skip
        names = ("inputs", "tokens", "cut", "failed_count", "failed")
        return {"study": self._workspace.keep(s), **{name: s.document[name] for name in names}, "tables": s.tables}

    def figure(
        self,
        result: ResultId,
        figure: Annotated[str, Field(description="A name from describe_methods: of figures, or study_figures.")],
        params: Annotated[dict[str, Any] | None, Field(description="Its parameters.")] = None,
        limit: Limit = 50,
    ) -> dict[str, Any]:
        """Read a chart of an analysis or a study: what it shows in a sentence, and its numbers as a table."""
        kept = self._workspace.result(result)
        drawing = _draw(kept, figure, params or {})
        return {"sentence": drawing.sentence, "rows": _records(drawing)}

    def table(
        self,
        study: Annotated[str, Field(description="The id that study returned.")],
        table: Annotated[str, Field(description="A name from `tables` of the study, such as heads.")],
        limit: Limit = 30,
    ) -> dict[str, Any]:
        """Read a table of a study, such as every head's means with 95 % bootstrap intervals."""
        found = build_table(self._workspace.study(study), table)
        count = len(found.columns)
        cut = (
            f"columns: the first {MOST_COLUMNS} of {count} are shown. A study with fewer measures or lenses has fewer."
        )
        return {"title": found.title, "rows": _records(found), "left_out": [cut] if count > MOST_COLUMNS else []}


def _report(context: Context) -> Progress:
    """Return a function that reports progress to the client, and raises once the client has cancelled."""

    def progress(fraction: float, stage: str, detail: str) -> None:
        anyio.from_thread.check_cancelled()
        anyio.from_thread.run(partial(context.report_progress, fraction, 1.0, f"{stage} {detail}".strip()))

    return progress


def _read_map(
    a: headscope.Analysis, lens: str, layer: int, head: int, by_word: bool
) -> tuple[Array, list[str], list[str]]:
    """Return the map of a head, [Q, K], and the texts of its tokens, or words, along both axes. Raises Unknown."""
    if lens not in a.maps:
        raise Unknown("lens", f"This analysis has the lenses {', '.join(a.maps)}.")
    maps = a.maps[lens]  # of a lens that reads whole layers, with one head
    grid = maps[_place("layer", a.layers, layer), _place("head", a.heads[: maps.shape[1]], head)]
    if not by_word:
        return grid, [token.text for token in a.tokens], [token.text for token in a.key_tokens]
    (rows, queries), (columns, keys) = words.word_groups(a.tokens), words.word_groups(a.key_tokens)
    return words.group(grid, rows, columns), queries, keys


def _place(what: str, numbers: list[int], number: int) -> int:
    """Return the index of a layer or head among those analysed. Raises Unknown."""
    if number not in numbers:
        raise Unknown(what, f"This analysis has {what}s {numbers[0]} to {numbers[-1]}.")
    return numbers.index(number)


def _records(table: Drawing | ResultTable) -> list[dict[str, Any]]:
    """Return the rows of a table by column, without undefined cells; of a wide table the first columns."""
    rows = (zip(table.columns[:MOST_COLUMNS], row, strict=False) for row in table.rows)
    return [{column: cell for column, cell in row if cell is not None} for row in rows]


def _draw(result: headscope.Analysis | headscope.Study, name: str, params: dict[str, Any]) -> Drawing:
    """Draw a figure of an analysis or a study. Raises what headscope's figures raise."""
    with validating():
        if isinstance(result, headscope.Study):
            declared = find_study_figure(name)
            return declared.build(result, declared.params.model_validate(params))
        figure = find_figure(name)
        return figure.build(result.source, figure.params.model_validate(params))
