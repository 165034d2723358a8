"""The request for an analysis: one input, one model, and how to read it. Its content determines its id."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from functools import cache, reduce
from importlib.metadata import version
from operator import or_
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    create_model,
    field_validator,
    model_validator,
)

from .._version import __version__
from ..core.declarations import Declaration
from ..errors import InvalidImage, InvalidRequest, Unknown, Unsupported
from ..lenses import LENSES
from ..measures import MEASURES
from ..mechanisms import MECHANISMS
from ..models.conversation import Message
from ..models.generation import Generate

# Increased whenever the same request would give other numbers than before.
SCHEMA = 2
# Prefix of the SHA-256 that refers to an image that is already stored.
STORED_IMAGE = "sha256:"
# Fields that hold the input; the others say what is done with it.
TEXT = frozenset({"text", "text_pair", "messages", "token_ids", "mask", "pos", "labels"})
INPUT = {*TEXT, "target_ids", "image"}
# Capabilities needed by methods that run the input, or a layer, again on its own.
ALONE = frozenset({"replay", "padding"})

Count = Annotated[int, Field(ge=0, le=1_000_000)]
Tag = Annotated[str, StringConstraints(max_length=100)]
Versions = dict[str, str | int]
# Validation of a long list stops at its first error (fail_fast): collecting 100,000 of them would block the server for seconds.


@cache
def _choice(name: str, params: type[BaseModel]) -> type[BaseModel]:
    """Create the model of a method's parameters with its name as discriminator. It is the same one in every request that has such a choice."""
    return create_model(
        "".join(part.title() for part in re.split("[-_]", name)) + "Choice",
        __base__=params,
        name=(Literal[name], name),  # type: ignore[arg-type]
    )


def choices_of(what: str, known: Mapping[str, Declaration], pointer: str | None = None) -> Any:
    """Create the type of a choice among methods: an object with name and parameters, or the bare name for default parameters.

    Errors point to the method's usual place in a request, unless `pointer` is another one.
    """

    def named(value: object) -> object:
        name = value.get("name") if isinstance(value, dict) else getattr(value, "name", value)
        if isinstance(name, str) and name not in known:
            raise Unknown(
                what, f"There is no such {what}. There are: {', '.join(known)}.", pointer=pointer or POINTERS[what]
            )
        if not isinstance(value, dict) and not hasattr(value, "name"):
            return {"name": value} if isinstance(value, str) else {}
        return value

    members = tuple(_choice(declaration.name, declaration.params) for declaration in known.values())
    either: Any = reduce(or_, members)
    choice: Any = Annotated[either, Field(discriminator="name")] if len(members) > 1 else either
    return Annotated[choice, BeforeValidator(named, json_schema_input_type=choice | Literal[tuple(known)])]


POINTERS = {"mechanism": "/mechanism", "lens": "/lenses", "measure": "/measures", "effect": "/method"}
MechanismChoice: Any = choices_of("mechanism", MECHANISMS)
# None means the one that the model was trained with.
MechanismWish: Any = MechanismChoice | None
MECHANISM: TypeAdapter[Any] = TypeAdapter(MechanismChoice)
LensChoice: Any = choices_of("lens", LENSES)
MeasureChoice: Any = choices_of("measure", MEASURES)
LensChoices: Any = Annotated[list[LensChoice], AfterValidator(lambda chosen: canonical("lens", chosen, list(LENSES)))]
MeasureChoices: Any = Annotated[
    list[MeasureChoice], AfterValidator(lambda chosen: canonical("measure", chosen, list(MEASURES)))
]


class AnalysisRequest(BaseModel):
    """One input and how to read it. Two requests that mean the same are equal, whatever the order of their lenses."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=())

    model: str = Field(min_length=1, max_length=200, description="Catalogue name, name of a local model, or hub id.")
    text: str | None = Field(default=None, description="The text to analyse.")
    text_pair: str | None = Field(default=None, description="A second text, for models that read pairs.")
    messages: list[Message] | None = Field(
        default=None,
        fail_fast=True,
        min_length=1,
        max_length=1_000,
        description="A conversation instead of a text, for models with a chat template. If the last message is not the assistant's, the beginning of its answer is added. "
        "An image goes before the user's first message.",
    )
    token_ids: list[Count] | None = Field(
        default=None,
        fail_fast=True,
        min_length=1,
        max_length=100_000,
        description="Token ids instead of a text, taken as they are.",
    )
    image: str | None = Field(
        default=None,
        max_length=20_000_000,
        description="An image for a vision model, or beside a text: a PNG, JPEG or WebP file in base64, or as a data URL; or `sha256:…`, as a document names a stored one.",
    )
    target_ids: list[Count] | None = Field(
        default=None,
        fail_fast=True,
        min_length=1,
        max_length=100_000,
        description="Token ids of the decoder's side, beside token_ids.",
    )
    generate: Generate | None = Field(
        default=None, description="Let the model continue the text, and analyse the whole of it."
    )
    mask: list[Count] | None = Field(
        default=None,
        fail_fast=True,
        min_length=1,
        max_length=100_000,
        description="Replace these tokens, counted from 0, by the model's mask token before the forward pass.",
    )
    pos: list[Tag] | None = Field(
        default=None, fail_fast=True, max_length=100_000, description="Parts of speech: one per word, or one per token."
    )
    labels: list[Tag] | None = Field(
        default=None, fail_fast=True, max_length=100_000, description="Entity labels: one per word, or one per token."
    )
    mechanism: MechanismWish = Field(
        default=None,
        description="How the model attends: a name, or an object with name and parameters. Without one as it was trained, which is softmax for most models.",
    )
    lenses: LensChoices = Field(
        default=["weights", "effective"],
        validate_default=True,
        max_length=100,
        description="How its attention is read: names, or objects with name and parameters.",
    )
    measures: MeasureChoices = Field(
        default=["entropy"],
        validate_default=True,
        max_length=100,
        description="Numbers to compute from the maps: names, or objects with name and parameters.",
    )
    layers: list[Count] | None = Field(
        default=None, fail_fast=True, min_length=1, max_length=10_000, description="Only these layers, counted from 0."
    )
    heads: list[Count] | None = Field(
        default=None,
        fail_fast=True,
        min_length=1,
        max_length=10_000,
        description="Only these heads of each layer, from 0.",
    )
    kind: Literal["self", "encoder", "decoder", "cross"] = Field(
        default="self", description="Which attention of the model."
    )
    max_tokens: int | None = Field(default=None, ge=1, le=1_000_000, description="Cut the input to that many tokens.")
    dtype: Literal["float32", "float64", "bfloat16", "float16"] = Field(
        default="float32", description="Arithmetic of the forward pass."
    )
    maps: bool = Field(default=True, description="Keep the maps themselves; without them thumbnails and measures stay.")

    @field_validator("layers", "heads", "mask")
    @classmethod
    def _sorted(cls, numbers: list[int] | None) -> list[int] | None:
        return None if numbers is None else sorted(set(numbers))

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        names = ("text", "messages", "token_ids", "image")
        given = tuple(name for name in names if getattr(self, name) is not None)
        if len(given) != 1 and given not in (("text", "image"), ("messages", "image")):
            raise InvalidRequest(
                "Give one of text, messages, token_ids and image, or an image and a text or messages.", pointer="/text"
            )
        if self.text_pair is not None and self.image is not None:
            raise InvalidRequest("An image goes with one text. Omit the second text.", pointer="/text_pair")
        if self.text_pair is not None and self.text is None:
            raise InvalidRequest("text_pair needs a text.", pointer="/text_pair")
        if self.mask is not None and (self.image is not None or self.generate is not None):
            raise InvalidRequest(
                "Only the tokens of a given text, of messages or of token_ids can be masked.", pointer="/mask"
            )
        if self.target_ids is not None and self.token_ids is None:
            raise InvalidRequest("target_ids need token_ids.", pointer="/target_ids")
        if not self.lenses and not self.measures:
            raise InvalidRequest("Request at least one lens or measure.", pointer="/lenses")
        if self.dtype in ("bfloat16", "float16") and any("values" in one.needs for one in self._readers):
            raise Unsupported(
                'Lenses and measures that read the values need float32 or float64. Set dtype to "float32".',
                pointer="/dtype",
            )
        return self

    @property
    def input(self) -> dict[str, Any]:
        """The arguments of Model.encode."""
        return {name: getattr(self, name) for name in (*INPUT, "generate", "kind", "max_tokens")}

    @property
    def record(self) -> dict[str, Any]:
        """The request as plain JSON to store with its result; an image is replaced by its SHA-256."""
        described = self.model_dump()
        if self.image is not None and not self.image.startswith(STORED_IMAGE):
            described["image"] = f"{STORED_IMAGE}{hashlib.sha256(self.image.encode()).hexdigest()}"
        return described

    @property
    def lens_names(self) -> list[str]:
        """Names of the requested lenses, in the order of LENSES."""
        return [choice.name for choice in self.lenses]

    @property
    def measure_names(self) -> list[str]:
        """Names of the requested measures, in the order of MEASURES."""
        return [choice.name for choice in self.measures]

    @property
    def readings(self) -> dict[str, Any]:
        """The lenses to read, with their parameters: the requested ones and those that measures need, in the order of LENSES."""
        chosen = {choice.name: choice for choice in self.lenses}
        needed = {lens for name in self.measure_names for lens in MEASURES[name].reads}
        for name in self.measure_names:  # of the weights if it can read them, else of the first lens that it can
            about = MEASURES[name].lenses
            if "weights" in about or not set(about) & {*chosen, *needed}:
                needed.add("weights" if "weights" in about else about[0])
        return {
            name: chosen.get(name) or lens.params() for name, lens in LENSES.items() if name in chosen or name in needed
        }

    @property
    def measured(self) -> dict[str, list[str]]:
        """The lenses for which each measure is computed: the requested ones and the weights, or if it supports none of them, those that are read."""
        readings, requested = self.readings, {*self.lens_names, "weights"}
        supported = {name: [lens for lens in MEASURES[name].lenses if lens in readings] for name in self.measure_names}
        return {name: [lens for lens in found if lens in requested] or found for name, found in supported.items()}

    @property
    def methods(self) -> list[Declaration]:
        """All methods involved: the mechanism, if one is named, then lenses and measures."""
        return [*([MECHANISMS[self.mechanism.name]] if self.mechanism else []), *self._readers]

    @property
    def _readers(self) -> list[Declaration]:
        return [*(LENSES[name] for name in self.readings), *(MEASURES[name] for name in self.measure_names)]

    def settled(self, trained: Mapping[str, Any]) -> Self:
        """Fill in the mechanism that the model was `trained` with, if none is named."""
        return self if self.mechanism else self.model_copy(update={"mechanism": settled(None, trained)})

    def key(self, model_digest: str) -> str:
        """Return the analysis' id: 128 bits of SHA-256 over everything that determines its numbers, as 32 hexadecimal digits."""
        return self._digest(model_digest, self.model_dump())

    def recipe(self, model_digest: str) -> str:
        """Return the same hash without the input. Analyses with one recipe and equally long inputs may share a forward pass.

        Empty for an analysis that needs its own pass: of an image, of an encoder-decoder, of a text that the model continues, or with a method that runs its
        input again.
        """
        single = (self.image, self.target_ids, self.generate)
        if any(given is not None for given in single) or any(set(method.needs) & ALONE for method in self.methods):
            return ""
        return self._digest(model_digest, self.model_dump(exclude=set(INPUT)))

    def _digest(self, model_digest: str, request: dict[str, Any]) -> str:
        # A field that is younger than stored results changes their ids only if it is used.
        for name in ("mask", "messages"):
            if request.get(name, ()) is None:
                del request[name]
        record = {**versions(), "model_digest": model_digest, "request": request}
        canonical = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
        return hashlib.sha256(canonical.encode()).hexdigest()[:32]


def settled(mechanism: Any, trained: Mapping[str, Any]) -> Any:
    """Return the chosen mechanism, or the one that the model was trained with if it is None."""
    return MECHANISM.validate_python(dict(trained)) if mechanism is None else mechanism


def with_stored_image(request: AnalysisRequest, read: Callable[[str], bytes | None]) -> AnalysisRequest:
    """Return the request with its image if it names a stored one by its SHA-256. Raises InvalidImage if `read` returns None."""
    named = re.fullmatch(rf"{STORED_IMAGE}([0-9a-f]{{64}})", request.image or "")
    if named is None:
        return request
    data = read(named[1])
    if data is None:
        raise InvalidImage("The image is no longer stored. Send the image itself.", pointer="/image")
    return request.model_copy(update={"image": data.decode()})


@cache
def versions() -> Versions:
    """Return the versions that also determine the numbers."""
    return {
        "schema": SCHEMA,
        "headscope": __version__,
        "torch": version("torch").split("+")[0],
        "transformers": version("transformers"),
    }


def canonical(what: str, chosen: list[Any], order: list[str], pointer: str | None = None) -> list[Any]:
    """Remove duplicates and sort. Raises InvalidRequest for a method with two sets of parameters."""
    found: dict[str, Any] = {}
    for choice in chosen:
        if found.setdefault(choice.name, choice) != choice:
            raise InvalidRequest(
                f"{choice.name} is requested twice, with different parameters.", pointer=pointer or POINTERS[what]
            )
    return [found[name] for name in order if name in found]


def check_capabilities(methods: list[Declaration], missing: Mapping[str, str]) -> None:
    """Raise Unsupported, with the reason, for the first method that the model does not support. `missing` is capability -> reason."""
    for method in methods:
        reason = explain_missing(method, missing)
        if reason is not None:
            pointer = POINTERS[type(method).__name__.lower()]
            raise Unsupported(f"{method.title} is not available for this model. {reason}", pointer=pointer)


def explain_missing(method: Declaration, missing: Mapping[str, str]) -> str | None:
    """Return why a model does not support a method, or a lens that it reads; None if it does."""
    reads = [LENSES[name].needs for name in getattr(method, "reads", ())]
    needs = (need for listed in (("weights",), method.needs, *reads) for need in listed)
    return next((missing[need] for need in needs if need in missing), None)
