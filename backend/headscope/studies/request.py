"""The request of a study: a data set, one model or two variants, and the lenses and measures to compute. Its content and its data determine the study's id."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, field_validator, model_validator

from ..analysis.effect_request import (
    BAD_TARGET,
    NO_READER,
    NO_REFERENCE,
    EffectRequest,
    Output,
    Outputs,
    Position,
    References,
    check_supported,
)
from ..analysis.request import (
    AnalysisRequest,
    LensChoices,
    MeasureChoices,
    MechanismWish,
    canonical,
    choices_of,
    settled,
    versions,
)
from ..core.declarations import Declaration
from ..core.right_key import SCORES
from ..effects.base import ChosenEffect
from ..effects.quantities import JUDGES
from ..errors import InvalidRequest, Unknown, Unsupported
from ..mechanisms import MECHANISMS
from ..models.facts import Facts
from .data.dataset import Row
from .figure_needs import FIGURE_NEEDS

# Increased whenever the same study would give different numbers than before.
SCHEMA = 1

OtherMechanism: Any = choices_of("mechanism", MECHANISMS, "/against/mechanism")
EffectChoice: Any = choices_of("effect", JUDGES, "/effects")
EffectChoices: Any = Annotated[
    list[EffectChoice], AfterValidator(lambda chosen: canonical("effect", chosen, list(JUDGES), "/effects"))
]
# What a figure of effects draws if the request names no method.
USUAL_EFFECT: ChosenEffect = TypeAdapter(EffectChoice).validate_python("contribution")

PLAIN = "Effects are computed with softmax. Remove the other mechanism, or the effects."
NO_OTHER_TEXT = (
    "Patching compares two texts, and this row has one. The other one is in the column with the role against."
)
CHOOSE = 'Heads of the encoder and of the decoder have different effects. Choose the heads of the decoder with kind "decoder" or "cross".'

_STRICT = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=())


class InlineData(BaseModel):
    """A small data set in the request itself."""

    model_config = _STRICT

    name: str = Field(min_length=1, max_length=200, description="Name of the file; its suffix determines the format.")
    data: str = Field(max_length=20_000_000, description="The whole file as text.")
    format: str | None = Field(
        default=None, max_length=20, description="The format, if the name does not determine it."
    )


class Against(BaseModel):
    """The second variant: a different model, a different mechanism, or both."""

    model_config = _STRICT

    model: str | None = Field(
        default=None, min_length=1, max_length=200, description="Its model; by default the same one."
    )
    mechanism: OtherMechanism | None = Field(
        default=None,
        description="How it attends: a name, or an object with parameters. By default as its model was trained.",
    )


@dataclass(frozen=True, slots=True)
class Variant:
    """A model under a mechanism."""

    model: str
    mechanism: Any


class StudyRequest(BaseModel):
    """A data set and how to read it. Requests that differ only in the order of lenses, measures or figures are equal."""

    model_config = _STRICT

    dataset: str | InlineData = Field(
        description="The id of an uploaded data set, `directory/file` of a directory that the server offers, "
        "`hub:org/name/path/in/repository`, or the data itself.",
    )
    model: str = Field(min_length=1, max_length=200, description="Catalogue name, name of a local model, or hub id.")
    mechanism: MechanismWish = Field(
        default=None,
        description="How the model attends: a name, or an object with name and parameters. By default as it was trained.",
    )
    against: Against | None = Field(default=None, description="A second variant to read the same inputs with.")
    lenses: LensChoices = Field(
        default=["weights", "effective"],
        validate_default=True,
        max_length=100,
        description="How attention is read: names, or objects with name and parameters.",
    )
    measures: MeasureChoices = Field(
        default=["entropy", "patterns", "special_tokens"],
        validate_default=True,
        max_length=100,
        description="Numbers to compute from the maps: names, or objects with name and parameters.",
    )
    effects: EffectChoices = Field(
        default=[],
        max_length=100,
        description="What every head does to a prediction of each input: names of methods, or objects with name and parameters.",
    )
    target: Output | Outputs | None = Field(
        default=None,
        description="Token or class that effects are about, or two in a list for the difference of their logits, in inputs whose row names none. "
        "By default the model's own choice.",
    )
    position: Position = None
    reference: References | None = Field(
        default=None,
        description='Texts, or their token ids, over whose tokens ablation with `"how": "reference"` takes the mean, for all inputs. '
        "At most the first 512 tokens of each are read.",
    )
    figures: list[str] = Field(
        default=[],
        max_length=100,
        description="Figures to draw. The lenses, measures and effects that they need are added to the request.",
    )
    columns: dict[str, str] | None = Field(
        default=None,
        description="Column names by role: text, text_pair, words, pos, labels or label; for effects target, minus (whose logit is subtracted) or against "
        "(the other text of patching).",
    )
    limit: int | None = Field(
        default=None, ge=1, le=100_000_000, description="Maximum number of inputs, drawn from the whole data set."
    )
    seed: int = Field(default=0, ge=0, lt=2**53, description="Seed for the choice of inputs and examples.")
    bad_rows: Literal["skip", "fail"] = Field(
        default="skip", description="Rows that cannot be read: skip and count them, or reject the data set."
    )
    max_tokens: int | None = Field(
        default=None, ge=1, le=1_000_000, description="Truncate every input to this many tokens."
    )
    kind: Literal["self", "encoder", "decoder", "cross"] = Field(
        default="self", description="The attention of the model to read."
    )

    @field_validator("figures")
    @classmethod
    def _known_figures(cls, chosen: list[str]) -> list[str]:
        if not set(chosen) <= set(FIGURE_NEEDS):
            raise Unknown("figure", f"Unknown study figure. Available: {', '.join(FIGURE_NEEDS)}.", pointer="/figures")
        return [name for name in FIGURE_NEEDS if name in chosen]

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if not self.analysis.lenses and not self.analysis.measures:
            raise InvalidRequest("Request at least one lens, measure, effect or figure.", pointer="/lenses")
        if isinstance(self.target, list) and len(self.target) not in (1, 2):
            raise InvalidRequest(BAD_TARGET, pointer="/target")
        if (self.target, self.position) != (None, None) and not self.judges:
            raise InvalidRequest("Only effects have a target. Name a method in effects.", pointer="/effects")
        if any(choice.needs("reference") for choice in self.judges) != (self.reference is not None):
            raise InvalidRequest(NO_REFERENCE if self.reference is None else NO_READER, pointer="/reference")
        pairs = [name for name in self.figures if "against" in FIGURE_NEEDS[name].asks]
        if pairs and self.against is None:
            raise InvalidRequest(
                f"The figure {pairs[0]} compares two variants. Give the second one as against.", pointer="/figures"
            )
        if len(self.variants) == 2 and self.variants[0] == self.variants[1]:
            raise InvalidRequest(
                "Both variants are the same. Choose a different model or mechanism for the second one.",
                pointer="/against",
            )
        return self

    def settled(self, trained: Sequence[Mapping[str, Any]]) -> Self:
        """Return a copy where variants without a mechanism get the one their model was `trained` with. Raises InvalidRequest if both variants are then the same."""
        chosen = [
            settled(variant.mechanism, mechanism) for variant, mechanism in zip(self.variants, trained, strict=True)
        ]
        against = self.against and self.against.model_copy(update={"mechanism": chosen[1]})
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self).model_validate({**fields, "mechanism": chosen[0], "against": against})

    @property
    def variants(self) -> list[Variant]:
        """The first variant, and the second one if there is one."""
        first = Variant(self.model, self.mechanism)
        if self.against is None:
            return [first]
        return [first, Variant(self.against.model or self.model, self.against.mechanism)]

    @cached_property
    def judges(self) -> Sequence[ChosenEffect]:
        """The methods for effects, with their parameters: the requested ones, or the usual one if a figure needs any."""
        needed = any("effects" in FIGURE_NEEDS[name].asks for name in self.figures)
        return self.effects or ([USUAL_EFFECT] if needed else [])

    @cached_property
    def scored(self) -> bool:
        """Whether lenses are scored by the keys that labels mark."""
        return any("truth" in FIGURE_NEEDS[name].asks for name in self.figures)

    def effect_on(self, row: Row, choice: ChosenEffect) -> EffectRequest:
        """Return the request for what heads do to the target of a row. Raises InvalidRequest."""
        if row.target is None and row.minus is not None:
            raise InvalidRequest("This row names what is subtracted (minus), but no target.", pointer="/dataset")
        patches = choice.needs("against")
        if patches and row.against is None:
            raise InvalidRequest(NO_OTHER_TEXT, pointer="/dataset")
        own = [one for one in (row.target, row.minus) if one is not None]
        return EffectRequest(
            target=own or self.target, position=self.position, method=choice, against=row.against if patches else None,
            reference=self.reference if choice.needs("reference") else None, predictions=1,
        )  # fmt: skip

    @cached_property
    def analysis(self) -> AnalysisRequest:
        """The analysis of the first variant, without its input: requested lenses and measures, and those that figures need; the weights if there are only effects."""
        needs = [FIGURE_NEEDS[name] for name in self.figures]
        lenses, measures = list(self.lenses), list(self.measures)
        lenses += _missing(lenses, [lens for figure in needs for lens in figure.lenses])
        measures += _missing(measures, [measure for figure in needs for measure in figure.measures])
        if not lenses and not measures and self.judges:
            lenses = ["weights"]
        return AnalysisRequest(
            model=self.model, text="-", mechanism=self.mechanism, lenses=lenses, measures=measures,
            kind=self.kind, max_tokens=self.max_tokens, maps=False,
        )  # fmt: skip

    @property
    def quantities(self) -> list[str]:
        """The names of the measures, effects and scores that are computed."""
        scores = [SCORES.name] if self.scored else []
        return [*self.analysis.measure_names, *(choice.name for choice in self.judges), *scores]

    @property
    def methods(self) -> list[Declaration]:
        """The mechanism, lenses and measures of each variant."""
        return [method for request in self.requests for method in request.methods]

    @property
    def requests(self) -> list[AnalysisRequest]:
        """The analysis of each variant, without its input: to check capabilities and memory."""
        return [
            self.analysis.model_copy(update={"model": variant.model, "mechanism": variant.mechanism})
            for variant in self.variants
        ]

    @staticmethod
    def with_row(request: AnalysisRequest, row: Row, *, maps: bool = False) -> AnalysisRequest:
        """Return the analysis of a variant with a row as its input."""
        return request.model_copy(
            update={
                "maps": maps, "text": row.text, "text_pair": row.text_pair,
                "pos": None if row.pos is None else list(row.pos),
                "labels": None if row.labels is None else list(row.labels),
            }
        )  # fmt: skip

    def key(self, model_digests: Sequence[str], data_digest: str, report: Mapping[str, Any]) -> str:
        """Return the study's id: 128 bits of SHA-256 over everything that determines its numbers and words, as 32 hexadecimal digits.

        `model_digests` are the digests of the variants' models, `data_digest` the digest of the selected rows, and `report` is that of the data set: other
        files may have the same rows, under other names, and beside rows that were left out.
        """
        fields = self.model_dump(include={"limit", "seed", "columns", "bad_rows"})
        return self._digest("study", model_digests, {**fields, "data": data_digest, "report": dict(report)})

    def chunk_key(self, model_digests: Sequence[str], data_digest: str) -> str:
        """Return the id of a chunk. Chunks with equal content share an id across studies."""
        return self._digest("chunk", model_digests, {"seed": self.seed, "data": data_digest})

    def _digest(self, what: str, model_digests: Sequence[str], rest: dict[str, Any]) -> str:
        record = {
            **versions(), "study_schema": SCHEMA, "what": what, "models": list(model_digests),
            "requests": [request.model_dump(exclude={"text", "mask"}) for request in self.requests], **rest,
        }  # fmt: skip
        if self.judges:
            record["effects"] = [choice.model_dump() for choice in self.judges]
            record |= self.model_dump(include={"target", "position"})
        if self.reference is not None:
            record["reference"] = self.reference
        if self.scored:
            record["scored"] = True
        text = json.dumps(record, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def check_effects(facts: Facts, request: StudyRequest, variant: AnalysisRequest) -> None:
    """Raise Unsupported for a variant in which heads have no effect on a prediction, and for methods that its model does not support."""
    for choice in request.judges:
        if variant.mechanism is not None and variant.mechanism.name != "softmax":
            raise Unsupported(PLAIN, pointer="/effects")
        if facts.kind == "encoder-decoder" and variant.kind == "self":
            raise Unsupported(CHOOSE, pointer="/kind")
        check_supported(JUDGES[choice.name], facts, variant.kind, "/effects")


def _missing(chosen: list[Any], names: list[str]) -> list[str]:
    """Return the names that have not been chosen yet."""
    present = {choice.name for choice in chosen}
    return [name for name in dict.fromkeys(names) if name not in present]
