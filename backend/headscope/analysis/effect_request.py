"""The request for an effect on an analysis: a target, and how heads are judged by it. Its content determines its id."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from ..core.attention import Kind
from ..core.declarations import HeadName
from ..effects import EFFECTS
from ..effects.base import EffectMethod
from ..errors import InvalidRequest, Unsupported
from ..models import support
from ..models.facts import Facts
from .request import Count, choices_of, explain_missing, versions

# A token or class, by its text or number.
Output = Annotated[str, StringConstraints(max_length=1_000)] | Count
Outputs = Annotated[list[Output], Field(max_length=100, fail_fast=True)]
Position = Annotated[
    int | None,
    Field(
        ge=-1_000_000,
        le=1_000_000,
        description="Token at which the model predicts, counted from 0, or from the end if negative. By default the last one, or the masked one.",
    ),
]
# A text, or its token ids.
Text = str | Annotated[list[Count], Field(min_length=1, max_length=100_000, fail_fast=True)]
References = Annotated[list[Text], Field(min_length=1, max_length=1_000, fail_fast=True)]
EffectChoice: Any = choices_of("effect", EFFECTS)

BAD_TARGET = "A target is one token, or a pair whose logits are subtracted."
NO_OTHER = "Patching compares two texts. Give the other one as against."
NO_PATCHING = "This method reads no other text. Omit against."
NO_REFERENCE = "A mean over reference texts needs at least one. Give them as reference."
NOTHING_READ = 'A Jacobian lens reads what heads write. Use the method {"name": "contribution", "writes": 5}.'
NO_READER = 'Only ablation with how="reference" reads reference texts. Omit them.'


class EffectRequest(BaseModel):
    """A target, and the method and heads that are judged by it."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=())

    target: Output | Outputs | None = Field(
        default=None,
        description='Token or class, such as `" Paris"`, with its space, or its number; two of them in a list for the difference of their logits. '
        "By default the model's own choice.",
    )
    position: Position = None
    method: EffectChoice = Field(
        default="contribution",
        validate_default=True,
        description="What is computed for every head: a name, or an object with name and parameters.",
    )
    heads: list[HeadName] | None = Field(
        default=None,
        min_length=1,
        max_length=10_000,
        fail_fast=True,
        description='For ablation and patching, only these heads, as layer.head counted from 0 (`"9.6"`): each on its own, and all of them together. '
        "It is another name for the method's parameter of this name.",
    )
    against: Text | None = Field(
        default=None, description="Another text of as many tokens, or its token ids, for patching and its estimate."
    )
    reference: References | None = Field(
        default=None,
        description='Texts, or their token ids, over whose tokens ablation with `"how": "reference"` takes the mean. '
        "At most the first 512 tokens of each are read.",
    )
    jacobian_lens: str | None = Field(
        default=None,
        max_length=32,
        description="Id of an uploaded Jacobian lens, through which contributions with `writes` read what heads write: a safetensors file with the matrix of layer l as `J_l`.",
    )
    predictions: int = Field(
        default=5, ge=1, le=100, description="Number of most likely tokens, or classes, to return with the effect."
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if isinstance(self.target, list) and len(self.target) not in (1, 2):
            raise InvalidRequest(BAD_TARGET, pointer="/target")
        if self.heads is not None and getattr(self.method, "heads", self.heads):
            raise InvalidRequest(
                "This method is computed for all heads. Omit heads."
                if not hasattr(self.method, "heads")
                else "Name heads once: beside the method, or among its parameters.",
                pointer="/heads",
            )
        if EFFECTS[self.method.name].of == "score" and (self.target, self.position, self.against) != (None, None, None):
            raise InvalidRequest(
                "A score is no prediction: it has a head, a query and a key, which are parameters of the method. Omit target, position and against.",
                pointer="/method",
            )
        if self.method.needs("against") != (self.against is not None):
            raise InvalidRequest(NO_OTHER if self.against is None else NO_PATCHING, pointer="/against")
        if self.method.needs("reference") != (self.reference is not None):
            raise InvalidRequest(NO_REFERENCE if self.reference is None else NO_READER, pointer="/reference")
        if self.jacobian_lens is not None and not getattr(self.method, "writes", 0):
            raise InvalidRequest(NOTHING_READ, pointer="/jacobian_lens")
        return self

    @property
    def outputs(self) -> list[str | int]:
        """The outputs that the target names; none for the model's own choice."""
        if self.target is None:
            return []
        return list(self.target) if isinstance(self.target, list) else [self.target]

    @property
    def params(self) -> Any:
        """The method's parameters, with the heads."""
        return self.method if self.heads is None else self.method.model_copy(update={"heads": self.heads})

    def key(self, analysis: str, model_digest: str) -> str:
        """Return the effect's id on an analysis, 32 hexadecimal digits."""
        effect = {**self.model_dump(exclude={"heads"}), "method": self.params.model_dump()}
        record = {**versions(), "effect": effect, "analysis": analysis, "model_digest": model_digest}
        return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:32]


def check_supported(method: EffectMethod, facts: Facts, kind: Kind, pointer: str) -> None:
    """Raise Unsupported for a model without predictions, and for a method that it does not support, to which `pointer` points."""
    silence = support.explain_silence(facts, kind, method.of)
    if silence is not None:
        raise Unsupported(silence)
    reason = explain_missing(method, support.find_missing(facts, kind))
    if reason is not None:
        raise Unsupported(reason, pointer=pointer)
