"""What a study asks for: a data set through one model or two variants, read through some lenses. Its content and its data are its name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from ..analysis.request import AnalysisRequest, LensChoice, MeasureChoice, MechanismWish, canonical, settled, versions
from ..core.declarations import Declaration
from ..errors import InvalidRequest, Unknown
from ..lenses import LENSES
from ..measures import MEASURES
from .data.dataset import Row

# Raised whenever the same study would give other numbers than before.
SCHEMA = 1

_STRICT = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=())


class InlineData(BaseModel):
    """A small data set in the request itself."""

    model_config = _STRICT

    name: str = Field(min_length=1, max_length=200, description="Name of the file; its ending tells the format.")
    data: str = Field(max_length=20_000_000, description="The whole file as text.")
    format: str | None = Field(default=None, max_length=20, description="The format, where the name does not tell it.")


class Against(BaseModel):
    """The second variant: another model, another mechanism, or both."""

    model_config = _STRICT

    model: str | None = Field(default=None, min_length=1, max_length=200, description="Its model; the same if missing.")
    mechanism: MechanismWish = Field(
        default=None,
        description="How it attends: a name, or an object with parameters. Without one as its model was trained.",
    )


@dataclass(frozen=True, slots=True)
class Variant:
    """A model under a mechanism."""

    model: str
    mechanism: Any


class StudyRequest(BaseModel):
    """A data set and how to read it. Two requests that mean the same are equal, whatever the order of their lenses."""

    model_config = _STRICT

    dataset: str | InlineData = Field(
        description="The id of an uploaded data set, `directory/file` of a directory that the server offers, "
        "`hub:org/name/path/in/repository`, or the data itself.",
    )
    model: str = Field(min_length=1, max_length=200, description="Catalogue name, name of a local model, or hub id.")
    mechanism: MechanismWish = Field(
        default=None,
        description="How the model attends: a name, or an object with name and parameters. Without one as it was trained.",
    )
    against: Against | None = Field(default=None, description="A second variant to read the same inputs with.")
    lenses: list[LensChoice] = Field(
        default=["weights", "effective"],
        validate_default=True,
        max_length=100,
        description="How attention is read: names, or objects with name and parameters.",
    )
    measures: list[MeasureChoice] = Field(
        default=["entropy", "patterns", "special_tokens"],
        validate_default=True,
        max_length=100,
        description="Numbers to compute from the maps: names, or objects with name and parameters.",
    )
    figures: list[str] = Field(
        default=[],
        max_length=100,
        description="Figures to draw from it: what they need is added to lenses and measures.",
    )
    columns: dict[str, str] | None = Field(
        default=None,
        description="Which column is which: text, text_pair, words, pos, labels or label, and the column's name.",
    )
    limit: int | None = Field(
        default=None, ge=1, le=100_000_000, description="At most so many inputs, drawn from the whole data set."
    )
    seed: int = Field(default=0, ge=0, lt=2**53, description="Which inputs are drawn, and which are kept as examples.")
    bad_rows: Literal["skip", "fail"] = Field(
        default="skip", description="Rows that can't be read: skip and count them, or refuse the data set."
    )
    max_tokens: int | None = Field(default=None, ge=1, le=1_000_000, description="Cut every input to that many tokens.")
    kind: Literal["self", "encoder", "decoder", "cross"] = Field(
        default="self", description="Which attention of the model."
    )

    @field_validator("lenses")
    @classmethod
    def _ordered_lenses(cls, chosen: list[Any]) -> list[Any]:
        return canonical("lens", chosen, list(LENSES))

    @field_validator("measures")
    @classmethod
    def _ordered_measures(cls, chosen: list[Any]) -> list[Any]:
        return canonical("measure", chosen, list(MEASURES))

    @field_validator("figures")
    @classmethod
    def _known_figures(cls, chosen: list[str]) -> list[str]:
        known = _figures() if chosen else {}
        if not set(chosen) <= set(known):
            raise Unknown(
                "figure", f"There is no such figure of studies. There are: {', '.join(known)}.", pointer="/figures"
            )
        return [name for name in known if name in chosen]

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if not self.analysis.lenses and not self.analysis.measures:
            raise InvalidRequest("Ask for at least one lens, measure or figure.", pointer="/lenses")
        if len(self.variants) == 2 and self.variants[0] == self.variants[1]:
            raise InvalidRequest(
                "Both variants are the same. Give the second one another model or another mechanism.",
                pointer="/against",
            )
        return self

    def settled(self, trained: Sequence[Mapping[str, Any]]) -> Self:
        """The same with the mechanisms that the models of the variants were `trained` with, where none is named. Raises InvalidRequest if both are the same then."""
        chosen = [settled(one.mechanism, its) for one, its in zip(self.variants, trained, strict=True)]
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
    def analysis(self) -> AnalysisRequest:
        """The analysis that every input is given, of the first variant, with the lenses and measures of the figures; only the input is missing."""
        drawn = [_figures()[name] for name in self.figures]
        lenses, measures = list(self.lenses), list(self.measures)
        lenses += _missing(lenses, [lens for figure in drawn for lens in figure.lenses])
        measures += _missing(measures, [measure for figure in drawn for measure in figure.measures])
        return AnalysisRequest(
            model=self.model, text="-", mechanism=self.mechanism, lenses=lenses, measures=measures,
            kind=self.kind, max_tokens=self.max_tokens, maps=False,
        )  # fmt: skip

    @property
    def methods(self) -> list[Declaration]:
        """Everything that takes part: mechanism, lenses, measures of each variant."""
        return [method for one in self.requests for method in one.methods]

    @property
    def requests(self) -> list[AnalysisRequest]:
        """What is asked of each variant, without the input: for checks of what the model can carry and of what fits."""
        return [
            self.analysis.model_copy(update={"model": one.model, "mechanism": one.mechanism}) for one in self.variants
        ]

    @staticmethod
    def given(asked: AnalysisRequest, row: Row, *, maps: bool = False) -> AnalysisRequest:
        """What is asked of a variant, with a row as its input."""
        return asked.model_copy(
            update={
                "maps": maps, "text": row.text, "text_pair": row.text_pair,
                "pos": None if row.pos is None else list(row.pos),
                "labels": None if row.labels is None else list(row.labels),
            }
        )  # fmt: skip

    def key(self, model_digests: Sequence[str], data_digest: str) -> str:
        """The study's id: 128 bits of SHA-256 over everything that decides its numbers, as 32 hexadecimal digits.

        `model_digests` are those of the variants' models, `data_digest` that of the rows chosen.
        """
        asked = self.model_dump(include={"limit", "seed", "columns", "bad_rows"})
        return self._digest("study", model_digests, {**asked, "data": data_digest})

    def part(self, model_digests: Sequence[str], data_digest: str) -> str:
        """The id of a chunk by its rows: chunks of equal content have one id, whatever study they are of."""
        return self._digest("chunk", model_digests, {"seed": self.seed, "data": data_digest})

    def _digest(self, what: str, model_digests: Sequence[str], rest: dict[str, Any]) -> str:
        record = {
            **versions(), "study_schema": SCHEMA, "what": what, "models": list(model_digests),
            "requests": [one.model_dump(exclude={"text"}) for one in self.requests], **rest,
        }  # fmt: skip
        text = json.dumps(record, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def _missing(chosen: list[Any], names: list[str]) -> list[str]:
    """Those of the names that no choice has yet."""
    there = {choice.name for choice in chosen}
    return [name for name in dict.fromkeys(names) if name not in there]


def _figures() -> dict[str, Any]:
    """The figures of studies. They read what a study keeps, so they are looked up when one is asked for."""
    from ..figures.studies import STUDY_FIGURES

    return dict(STUDY_FIGURES)
