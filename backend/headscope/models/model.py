"""A model in memory: it encodes inputs as tokens, and tokens as arguments of its forward pass."""

from __future__ import annotations

import inspect
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from tokenizers import Tokenizer

from ..core.attention import Kind, ResultWarning
from ..core.text import check_text
from ..core.tokens import Token
from ..errors import InvalidRequest, TooManyTokens, Unsupported
from . import conversation, digests, dispatch, generation, image_text, images, modules, quantisation, support, tokens
from .conversation import ChatTemplate, Message
from .facts import Facts
from .generation import Generate
from .located import Located
from .masking import mask_tokens
from .tokens import Encoded

# Attribute of a module: a function that returns the mechanism it attends by, or None for its own attention.
CURRENT_MECHANISM = "headscope_mechanism"
DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16, "float16": torch.float16}
NO_TOKENIZER = "This model came without a tokenizer. Give token_ids, or load it with its tokenizer."
NO_KINDS = "The model has no tokenizer, so it is unknown which tokens are special, punctuation or parts of words."
# Tokens of the probe. Encoder and decoder have different lengths, so that their maps cannot be confused.
PROBE, PROBE_TARGET = 12, 9
# Most tokens that an image processor may produce, as a multiple of those for the model's own image size.
LARGER = 4
SILENCE = -1.5  # every value of the log-mel spectrogram that Whisper's feature extractor makes of silence


@dataclass(frozen=True, slots=True)
class _RawInput:
    """The arguments of Model.encode, without annotations."""

    text: str | None
    text_pair: str | None
    messages: list[Message] | None
    token_ids: list[int] | None
    target_ids: list[int] | None
    max_tokens: int | None
    image: Any
    kind: Kind
    generate: Generate | None


@dataclass(eq=False)
class Model:
    """A model ready to be analysed: the module, its tokenizer or image processor, and the facts that its configuration tells."""

    name: str
    module: Any
    tokenizer: Tokenizer | None
    configured: Facts
    source: Located | None = None
    special_ids: frozenset[int] = frozenset()
    unknown: str | None = None
    mask: str | None = None  # the mask token
    template: ChatTemplate | None = None
    target_tokenizer: Tokenizer | None = None  # of the decoder, if it differs
    processor: Any = None
    no_tokenizer: str = NO_TOKENIZER  # why there is none
    no_processor: str = image_text.NO_PROCESSOR  # why a vision-language model has none
    vectors: list[list[list[float]]] | None = None  # [layers, specials, width] of a PASTA-tuned model
    _hashed: tuple[Any, str] = field(default=(None, ""), repr=False)

    @property
    def facts(self) -> Facts:
        """What its configuration tells, with the mechanism that attend_by or learn_pasta has put in place."""
        mechanism: dict[str, Any] = getattr(self.module, CURRENT_MECHANISM, dict)()
        return replace(self.configured, mechanism=mechanism, patched=True) if mechanism else self.configured

    @property
    def digest(self) -> str:
        """SHA-256 of the files, or of the current configuration, parameters, tokenizer and image processor of a model created in memory."""
        if self.source is not None:
            return self.source.digest()
        with self.lock:
            fingerprint = digests.fingerprint(self.module)
            if self._hashed[0] != fingerprint:
                tokenizers = (self.tokenizer, self.target_tokenizer)
                self._hashed = fingerprint, digests.digest(self.module, tokenizers, self.processor, self.template)
            return self._hashed[1]

    @property
    def lock(self) -> AbstractContextManager[None]:
        """The lock of the module: it excludes every other use of the module, or of a part of it, by Headscope."""
        return modules.exclusive(self.module)

    @property
    def bytes(self) -> int:
        """Bytes of the parameters and buffers, those that are offloaded included."""
        tensors = [*self.module.parameters(), *self.module.buffers()]
        return sum(one.numel() * one.element_size() for one in quantisation.stored_tensors(tensors))

    @property
    def device(self) -> torch.device:
        """The device of the model's inputs and outputs; its parts may be on others."""
        return dispatch.home(self.module)

    @property
    def quantised_by(self) -> str:
        """The packages that compute with its quantised weights, such as "bitsandbytes"; empty for other models."""
        return quantisation.packages(self.module)

    @property
    def width(self) -> int:
        """Width of the hidden states (of the decoder, if the stacks differ)."""
        config = self.module.config
        parts = (config, getattr(config, "text_config", None), getattr(config, "decoder", None))
        found = (getattr(part, name, None) for part in parts for name in ("hidden_size", "d_model"))
        return next((one for one in found if isinstance(one, int)), 0)

    @property
    def vocabulary(self) -> int:
        """Number of token ids in the embedding. Raises Unsupported for models without one."""
        if (matrix := dispatch.embedding_matrix(self.module)) is not None:
            return int(matrix.shape[0])
        known = getattr(self.module.config, "vocab_size", None)
        if isinstance(known, int) and known > 0:
            return known
        raise Unsupported("This model does not read token ids from a vocabulary, so it cannot be analysed.")

    @property
    def missing(self) -> dict[str, str]:
        """Missing capability -> reason, as far as tokens are concerned."""
        return {"kinds": NO_KINDS} if self.tokenizer is None and self.facts.kind != "vision" else {}

    @property
    def listens(self) -> bool:
        """Whether the encoder takes audio, so that only the decoder can be analysed."""
        return self.facts.kind == "encoder-decoder" and getattr(self.module, "main_input_name", "") == "input_features"

    def encode(
        self,
        text: str | None = None,
        text_pair: str | None = None,
        *,
        messages: list[Message] | None = None,
        token_ids: list[int] | None = None,
        target_ids: list[int] | None = None,
        max_tokens: int | None = None,
        image: Any = None,
        kind: Kind = "self",
        generate: Generate | None = None,
        mask: list[int] | None = None,
        pos: list[str] | None = None,
        labels: list[str] | None = None,
    ) -> Encoded:
        """Encode an input as tokens: one or two texts, messages, ids, an image (anything that images.read takes), or an image and a text.

        For an encoder-decoder, `text` goes to the encoder and `text_pair` to the decoder, after the model's start token; `target_ids` are used unchanged.
        `generate` makes the model continue the text, or generate the decoder's text. `mask` replaces tokens, counted from 0, by the mask token.
        `pos` and `labels` have one entry per word, or one per token.

        Raises InvalidText, InvalidImage, TooManyTokens, InvalidRequest or Unsupported.
        """
        self.facts.tower(kind)
        given = _RawInput(text, text_pair, messages, token_ids, target_ids, max_tokens, image, kind, generate)
        support.check_input(self.facts, given)
        if self.facts.kind == "vision":
            encoded = self._encode_image(given)
        elif self.listens:
            encoded = self._encode_without_audio(given)
        elif self.facts.kind == "encoder-decoder":
            encoded = self._encode_pair(given)
        else:
            encoded = self._encode_text(given)
        encoded = tokens.annotate(encoded, pos, labels)
        if mask is None:
            return encoded
        if self.facts.kind in ("encoder-decoder", "vision"):
            raise Unsupported("Only models that read a single text can mask tokens.", pointer="/mask")
        return mask_tokens(encoded, mask, self.tokenizer, self.mask)

    def _encode_image(self, given: _RawInput) -> Encoded:
        patches = self.facts.patches
        if patches is None:
            raise Unsupported("Headscope does not know how this model cuts images into patches.", pointer="/model")
        channels = int(getattr(self.module.config, "num_channels", 3) or 3)
        pixels = images.prepare(given.image, self.processor, patches, channels)
        warnings = () if self.processor is not None else (_assumed(patches.size),)
        encoded = replace(
            images.encode(pixels, patches), picture=images.to_picture(pixels, self.processor), warnings=warnings
        )
        if pixels.shape[1] != channels or len(encoded.tokens) > LARGER * patches.tokens:
            raise Unsupported(
                "The image processor produces images that this model was not built for. Load the model with its own processor.",
                pointer="/model",
            )
        if given.max_tokens is not None and given.max_tokens < len(encoded.tokens):
            raise InvalidRequest(
                "An image cannot be truncated to fewer tokens. Omit max_tokens.", pointer="/max_tokens"
            )
        return encoded

    def _encode_text(self, given: _RawInput) -> Encoded:
        """Encode one or two texts, or an image and a text, for a model with a single stack."""
        if given.generate is not None and given.text_pair is not None:
            raise InvalidRequest("The model continues one text. Omit the second text.", pointer="/text_pair")
        encoded = self._source(given, given.text_pair) if given.image is None else image_text.encode(self, given)
        tokens.check_length(len(encoded.tokens), self.facts.max_tokens)
        by_ids = given.token_ids is not None
        return encoded if given.generate is None else self._continue(encoded, given.generate, by_ids)

    def _source(self, given: _RawInput, text_pair: str | None = None) -> Encoded:
        if given.token_ids is not None:
            return tokens.from_ids(
                self.tokenizer, given.token_ids[: given.max_tokens], self.special_ids, self.vocabulary
            )
        if given.messages is not None:
            return self._converse(given.messages, given.max_tokens)
        if given.text is None:
            raise InvalidRequest("Give a text, messages, or token_ids.", pointer="/text")
        return self._tokenize(self.tokenizer, given.text, text_pair, given.max_tokens)

    def _converse(self, messages: list[Message], most: int | None) -> Encoded:
        if self.tokenizer is None:
            raise Unsupported(self.no_tokenizer, pointer="/model")
        return conversation.encode(self.tokenizer, self.template, messages, unknown=self.unknown, max_tokens=most)

    def _tokenize(
        self, tokenizer: Tokenizer | None, text: str, text_pair: str | None, most: int | None, pointer: str = "/text"
    ) -> Encoded:
        if tokenizer is None:
            raise Unsupported(self.no_tokenizer, pointer="/model")
        check_text(text, pointer)
        if text_pair is not None:
            check_text(text_pair, "/text_pair")
        return tokens.encode(tokenizer, text, text_pair, unknown=self.unknown, max_tokens=most)

    def _continue(self, encoded: Encoded, generate: Generate, by_ids: bool) -> Encoded:
        before = [token.id for token in encoded.tokens]
        added = self._generate(encoded, generate, self.facts.max_tokens, len(before))[len(before) :]
        if by_ids or self.tokenizer is None:
            found = tokens.from_ids(self.tokenizer, [*before, *added], self.special_ids, self.vocabulary)
            return replace(found, generated=len(added))
        return tokens.extend(self.tokenizer, encoded, added, self.special_ids, self.unknown)

    def _generate(self, encoded: Encoded, generate: Generate, most: int | None, used: int) -> list[int]:
        room = generate.max_new_tokens if most is None else most - used
        if room < 1:
            raise TooManyTokens(
                f"The text fills all {most} tokens that the model takes, so it cannot be continued. Shorten it.",
                pointer="/text",
                limit=most,
                actual=used + 1,
            )
        inputs = self.inputs(encoded)
        inputs.pop("decoder_input_ids", None)
        with self.lock:
            return generation.generate(self.module, inputs, generate, room)

    def _encode_pair(self, given: _RawInput) -> Encoded:
        """Encode a text for the encoder and, unless only that is analysed, another one for the decoder."""
        targets = [given.text_pair, given.target_ids, given.generate]
        if sum(value is not None for value in targets) > 1:
            raise InvalidRequest(
                "The decoder reads one text: give only one of text_pair, target_ids and generate.", pointer="/text_pair"
            )
        source = self._source(given)
        tokens.check_length(len(source.tokens), self.facts.tower("encoder").max_tokens)
        return self._with_target(source, given)

    def _with_target(self, source: Encoded, given: _RawInput) -> Encoded:
        most = self.facts.tower("decoder").max_tokens
        if given.target_ids is not None:
            ids = given.target_ids[: given.max_tokens]
            found = tokens.from_ids(self.tokenizer, ids, self.special_ids, self.vocabulary, "/target_ids")
        elif given.text_pair is not None:
            found = self._target_tokens(given.text_pair, given.max_tokens, "/text_pair")
        elif given.generate is not None:
            start, *added = self._generate(source, given.generate, most, 1)
            found = self._generated_target(start, added)
        else:
            return source
        tokens.check_length(len(found.tokens), most, "/text_pair")
        target = tokens.as_target(found.tokens, source.tokens)
        return replace(source, target=target, target_text=found.text, generated=found.generated)

    def _target_tokens(self, text: str, most: int | None, pointer: str) -> Encoded:
        """Encode a text as the decoder's input in training: shifted by one, after the start token."""
        found = self._tokenize(self.target_tokenizer or self.tokenizer, text, None, most, pointer)
        listed = found.tokens
        if self.listens and listed and listed[0].id == self._start:
            listed = listed[1:]
        if not listed or listed[-1].kind != "special":
            listed = [*listed, Token("", self._end, 0, 0, None, 0, "special")]  # dropped by the shift
        ids = self._shifted([token.id for token in listed])
        return replace(found, tokens=[self._special(ids[0]), *listed[:-1]][:most])

    def _shifted(self, labels: list[int]) -> list[int]:
        """Return the decoder's input for these labels, by the model's own rule if it has one."""
        own = getattr(self.module, "prepare_decoder_input_ids_from_labels", None)
        if callable(own):
            with torch.inference_mode():
                shifted: list[int] = own(labels=torch.tensor([labels], device=self.device))[0].tolist()
            if shifted[1:] == labels[:-1]:
                return shifted
        return [self._start, *labels[:-1]]

    def _generated_target(self, start: int, added: list[int]) -> Encoded:
        """Encode the ids that the model generated after its start token."""
        if self.tokenizer is None:
            found = tokens.from_ids(None, [start, *added], self.special_ids, self.vocabulary)
            return replace(found, generated=len(added))
        first = Encoded([self._special(start)], [0], text="")
        tokenizer = self.target_tokenizer or self.tokenizer
        return tokens.extend(tokenizer, first, added, self.special_ids | {start}, self.unknown)

    def _special(self, id_: int) -> Token:
        name = self.tokenizer.id_to_token(id_) if self.tokenizer else None
        return Token(name or str(id_), id_, 0, 0, None, 0, "special")

    @property
    def _start(self) -> int:
        return self._known_id("decoder_start_token_id", "bos_token_id", "pad_token_id")

    @property
    def _end(self) -> int:
        return self._known_id("eos_token_id", "pad_token_id")

    def _known_id(self, *names: str) -> int:
        for name in names:
            for config in (self.module.config, getattr(self.module, "generation_config", None)):
                value = getattr(config, name, None)
                value = value[0] if isinstance(value, list) and value else value
                if isinstance(value, int):
                    return value
        return 0

    def _encode_without_audio(self, given: _RawInput) -> Encoded:
        """Encode a text for the decoder of an audio model, whose encoder gets silence."""
        if given.kind != "decoder":
            raise Unsupported(
                'This model\'s encoder takes audio, which Headscope does not support. Its decoder can be analysed on a text: set kind to "decoder".',
                pointer="/kind",
            )
        if given.generate is not None:
            raise Unsupported("Without audio this model has nothing to transcribe. Omit generate.", pointer="/generate")
        ids = given.target_ids if given.target_ids is not None else given.token_ids
        text = given.text if given.text is not None else given.text_pair
        if ids is not None:
            found = tokens.from_ids(self.tokenizer, ids[: given.max_tokens], self.special_ids, self.vocabulary)
        elif text is not None:
            found = self._target_tokens(text, given.max_tokens, "/text")
        else:
            raise InvalidRequest("Give a text, or token_ids.", pointer="/text")
        tokens.check_length(len(found.tokens), self.facts.tower("decoder").max_tokens)
        warned = ResultWarning(
            "no-audio", "The model got no audio: its decoder attends to itself as it would after silence."
        )
        target = tokens.as_target(found.tokens, [])
        return replace(self._silence, target=target, target_text=found.text, warnings=(warned,))

    @cached_property
    def _silence(self) -> Encoded:
        """The encoder's output for silence. It runs once, on its own, since its attention over thousands of frames is not analysed."""
        config = self.module.config
        shape = (1, config.num_mel_bins, 2 * config.max_source_positions)
        with self.lock, self.using("float32"), modules.evaluating(self.module), torch.inference_mode():
            features = torch.full(shape, SILENCE, device=self.device)
            heard = self.module.get_encoder()(features).last_hidden_state
        frames = [Token(f"[{index}]", index, 0, 0, None, 0, "special") for index in range(heard.shape[1])]
        return Encoded(frames, [0] * len(frames), heard=heard)

    def inputs(self, encoded: Encoded) -> dict[str, Any]:
        """Return the arguments of the forward pass for one input: a batch of one, without padding."""
        device = self.device
        if encoded.pixels is not None:
            return self._image_inputs(encoded)
        if encoded.heard is not None:
            arguments: dict[str, Any] = {"encoder_outputs": (encoded.heard.to(device, self.module.dtype),)}
        else:
            ids = torch.tensor([[token.id for token in encoded.tokens]], device=device)
            arguments = {
                "input_ids": ids,
                "attention_mask": torch.ones_like(ids),
                **image_text.arguments(encoded, device, self.module.dtype),
            }
        if self.facts.kind == "encoder-decoder":
            # The decoder also runs without a text, on its start token.
            read = [token.id for token in encoded.target] if encoded.target else [self._start]
            arguments["decoder_input_ids"] = torch.tensor([read], device=device)
        # Models without an embedding of types read them as something else: GPT-2 and XLM as words, PaliGemma as the end of an image.
        types = getattr(self.module.config, "type_vocab_size", None)
        if types and "token_type_ids" in self.forward_arguments and self.facts.kind == "encoder":
            most = int(types) - 1
            arguments["token_type_ids"] = torch.tensor([encoded.type_ids], device=device).clamp_max(most)
        return arguments

    def _image_inputs(self, encoded: Encoded) -> dict[str, Any]:
        pixels = encoded.pixels.to(self.device, self.module.dtype) if encoded.pixels is not None else None
        arguments: dict[str, Any] = {"pixel_values": pixels}
        known = self.facts.patches
        if (
            known
            and encoded.grid
            and encoded.grid.size != known.size
            and "interpolate_pos_encoding" in self.forward_arguments
        ):
            arguments["interpolate_pos_encoding"] = True  # as the model does for other image sizes
        return arguments

    @cached_property
    def forward_arguments(self) -> frozenset[str]:
        """Names of the arguments of the module's forward pass."""
        return frozenset(inspect.signature(self.module.forward).parameters)

    def probe(self, seed: int = 0, pictured: bool = False) -> Encoded:
        """Return a short fixed input of the model's kind, on which captured attention is compared with eager attention; `pictured`: an image and a text."""
        generator = torch.Generator().manual_seed(seed)
        if pictured:
            return self.encode(image_text.PROBE, image=images.noise(64, 64))
        if self.facts.kind == "vision" and self.facts.patches:
            width, height = self.facts.patches.size
            picture = torch.randint(256, (height, width, 3), generator=generator, dtype=torch.uint8).numpy()
            return self.encode(image=picture)
        window = int(self.module.config.to_dict().get("sliding_window") or 0)
        count = PROBE + (window if window <= 64 else 0)  # long enough to exceed a small window
        source = self._random(count, self.facts.max_tokens, generator)
        if self.facts.kind != "encoder-decoder":
            return source
        target = self._random(PROBE_TARGET, self.facts.tower("decoder").max_tokens, generator).tokens
        return replace(self._silence if self.listens else source, target=target)

    def _random(self, count: int, most: int | None, generator: torch.Generator) -> Encoded:
        ids = torch.randint(self.vocabulary, (min(count, most or count),), generator=generator).tolist()
        return tokens.from_ids(None, ids, frozenset(), self.vocabulary)

    def using(self, dtype: str) -> AbstractContextManager[None]:
        """Compute in `dtype`, whatever the module's own dtype is. The caller holds the lock."""
        if dtype not in DTYPES:
            raise InvalidRequest(f"dtype must be one of {', '.join(DTYPES)}.", pointer="/dtype")
        return modules.converted(self.module, DTYPES[dtype])


def _assumed(size: tuple[int, int]) -> ResultWarning:
    """Return the warning about an image for a model without an image processor."""
    return ResultWarning(
        "no-image-processor",
        f"The model came without an image processor, so the image was scaled to {size[0]} x {size[1]} pixels and its values to -1..1. "
        "If the model was trained with another preprocessing, load it with its processor.",
    )
