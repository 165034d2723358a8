"""What can be asked for: one input through one model, read through some lenses. Its content is its name."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model, field_validator, model_validator

from ._version import __version__
from .errors import InvalidRequest, Unknown, Unsupported
from .lenses import LENSES
from .measures import MEASURES
from .mechanisms import MECHANISMS
from .types import Mechanism

# Raised whenever the same request would give other numbers than before.
SCHEMA = 1

Count = Annotated[int, Field(ge=0, le=1_000_000)]


def _choice(mechanism: Mechanism) -> type[BaseModel]:
    """The mechanism's parameters, and its name to choose it by."""
    return create_model(
        "".join(part.title() for part in mechanism.name.split("-")) + "Choice",
        __base__=mechanism.params,
        name=(Literal[mechanism.name], mechanism.name),  # type: ignore[arg-type]
    )


def _named(value: object) -> object:
    """A bare name stands for the mechanism with its default parameters."""
    name = value.get("name") if isinstance(value, dict) else getattr(value, "name", value)
    if isinstance(name, str) and name not in MECHANISMS:
        raise Unknown(
            "mechanism", f"There is no such mechanism. There are: {', '.join(MECHANISMS)}.", pointer="/mechanism"
        )
    return {"name": value} if isinstance(value, str) else value


_CHOICES = tuple(_choice(mechanism) for mechanism in MECHANISMS.values())
MechanismChoice: Any = _CHOICES[0] if len(_CHOICES) == 1 else Annotated[_CHOICES, Field(discriminator="name")]


class AnalysisRequest(BaseModel):
    """One input and how to read it. Two requests that mean the same are equal, whatever the order of their lenses."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=())

    model: str = Field(min_length=1, max_length=200, description="Catalogue name, name of a local model, or hub id.")
    text: str | None = Field(default=None, description="The text to analyse.")
    text_pair: str | None = Field(default=None, description="A second text, for models that read pairs.")
    token_ids: list[Count] | None = Field(
        default=None, min_length=1, max_length=100_000, description="Token ids instead of a text, taken as they are."
    )
    mechanism: Annotated[MechanismChoice, BeforeValidator(_named)] = Field(
        default=_CHOICES[0](), description="How the model attends."
    )
    lenses: list[str] = Field(
        default=["weights", "effective"], max_length=100, description="How its attention is read."
    )
    measures: list[str] = Field(default=["entropy"], max_length=100, description="Numbers to compute from the maps.")
    layers: list[Count] | None = Field(
        default=None, min_length=1, max_length=10_000, description="Only these layers, counted from 0."
    )
    heads: list[Count] | None = Field(
        default=None, min_length=1, max_length=10_000, description="Only these heads of each layer, from 0."
    )
    kind: Literal["self", "encoder", "decoder", "cross"] = Field(
        default="self", description="Which attention of the model."
    )
    max_tokens: int | None = Field(default=None, ge=1, le=1_000_000, description="Cut the input to that many tokens.")
    dtype: Literal["float32", "float64", "bfloat16", "float16"] = Field(
        default="float32", description="Arithmetic of the forward pass."
    )
    maps: bool = Field(default=True, description="Keep the maps themselves; without them thumbnails and measures stay.")

    @field_validator("lenses")
    @classmethod
    def _known_lenses(cls, names: list[str]) -> list[str]:
        return _canonical("lens", names, list(LENSES), "/lenses")

    @field_validator("measures")
    @classmethod
    def _known_measures(cls, names: list[str]) -> list[str]:
        return _canonical("measure", names, list(MEASURES), "/measures")

    @field_validator("layers", "heads")
    @classmethod
    def _sorted(cls, numbers: list[int] | None) -> list[int] | None:
        return None if numbers is None else sorted(set(numbers))

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if (self.text is None) == (self.token_ids is None):
            raise InvalidRequest("Give either a text or token_ids.", pointer="/text")
        if self.text_pair is not None and self.text is None:
            raise InvalidRequest("A second text needs a first one.", pointer="/text_pair")
        if self.kind != "self":
            raise Unsupported('Only kind "self" can be analysed in this version.', pointer="/kind")
        if self.dtype in ("bfloat16", "float16") and any("values" in LENSES[name].needs for name in self.readings):
            raise Unsupported(
                'Lenses and measures that look at the values need them in float32 or wider. Ask for dtype "float32".',
                pointer="/dtype",
            )
        if not self.lenses and not self.measures:
            raise InvalidRequest("Ask for at least one lens or measure.", pointer="/lenses")
        return self

    @property
    def readings(self) -> list[str]:
        """The lenses to read: those asked for and those the measures need, in the order of LENSES."""
        needed = {lens for name in self.measures for lens in MEASURES[name].needs}
        return [name for name in LENSES if name in self.lenses or name in needed]

    @property
    def mechanism_name(self) -> str:
        """Name of the mechanism."""
        return str(self.mechanism.name)

    def key(self, model_digest: str) -> str:
        """The analysis' id: 128 bits of SHA-256 over everything that decides its numbers, as 32 hexadecimal digits."""
        from importlib.metadata import version

        record = {
            "schema": SCHEMA,
            "headscope": __version__,
            "torch": version("torch").split("+")[0],
            "transformers": version("transformers"),
            "model_digest": model_digest,
            "request": self.model_dump(),
        }
        canonical = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
        return hashlib.sha256(canonical.encode()).hexdigest()[:32]


def _canonical(what: str, names: list[str], known: list[str], pointer: str) -> list[str]:
    """Without repetitions and in one order; Unknown for a name that does not exist."""
    if not set(names) <= set(known):
        raise Unknown(what, f"There is no such {what}. There are: {', '.join(known)}.", pointer=pointer)
    return [name for name in known if name in names]
