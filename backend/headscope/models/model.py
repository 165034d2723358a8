"""A model in memory: what it takes in becomes tokens here, and tokens become the arguments of its forward pass."""

from __future__ import annotations

import hashlib
import inspect
import json
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from tokenizers import Tokenizer

from ..core.attention import Kind, ResultWarning
from ..core.tokens import Token
from ..errors import InvalidRequest, TooManyTokens, Unsupported
from . import generation, images, modules, support, tokens
from .catalog import Located
from .facts import Facts
from .generation import Generate
from .tokens import Encoded

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16, "float16": torch.float16}
NO_TOKENIZER = "This model came without a tokenizer. Give token_ids, or load it with its tokenizer."
NO_KINDS = "The model has no tokenizer, so which tokens are special, punctuation or parts of words is unknown."
# What the model is compared on with its own attention: lengths of encoder and decoder differ, so that none passes for the other.
PROBE, PROBE_TARGET = 12, 9
# Most tokens that an image processor may give, as a multiple of those of the size the model was made for.
LARGER = 4
SILENCE = -1.5  # every value of the log-mel spectrogram that Whisper's feature extractor makes of silence


@dataclass(frozen=True, slots=True)
class _Asked:
    """What Model.encode was called with, apart from the annotations."""

    text: str | None
    text_pair: str | None
    token_ids: list[int] | None
    target_ids: list[int] | None
    max_tokens: int | None
    image: Any
    kind: Kind
    generate: Generate | None


@dataclass(eq=False)
class Model:
    """A model ready to be analysed: the module, its tokenizer or image processor, and what is known of it."""

    name: str
    module: Any
    tokenizer: Tokenizer | None
    facts: Facts
    source: Located | None = None
    special_ids: frozenset[int] = frozenset()
    unknown: str | None = None
    target_tokenizer: Tokenizer | None = None  # where the decoder's text is written otherwise than the encoder's
    processor: Any = None
    no_tokenizer: str = NO_TOKENIZER  # why there is none
    vectors: list[list[list[float]]] | None = None  # [layers, specials, width], of a model tuned by its special tokens
    _hashed: tuple[Any, str] = field(default=(None, ""), repr=False)

    @property
    def digest(self) -> str:
        """SHA-256 of the files, or for a model made in memory of its configuration, parameters, tokenizer and image processor as they are now."""
        if self.source is not None:
            return self.source.digest()
        with self.lock:
            print_ = self._print()
            if self._hashed[0] != print_:
                self._hashed = print_, self._hash()
            return self._hashed[1]

    def _print(self) -> tuple[Any, ...]:
        """What is another when somebody has trained the model on, or changed a part of it: quick to tell, unlike the hash."""
        tensors = map(_print_of, self.module.state_dict().values())
        return self.module.config.to_json_string(), modules.adapters(self.module), *tensors

    def _hash(self) -> str:
        whole = hashlib.sha256(self.module.config.to_json_string().encode())
        whole.update(modules.adapters(self.module).encode())
        for name, tensor in self.module.state_dict().items():
            data = tensor.detach().cpu().contiguous()
            whole.update(f"{name}:{data.dtype}:{tuple(data.shape)};".encode())
            whole.update(data.flatten().view(torch.uint8).numpy().data)
        for tokenizer in (self.tokenizer, self.target_tokenizer):
            whole.update(tokenizer.to_str().encode() if tokenizer else b"")
        if self.processor is not None:
            whole.update(json.dumps(self.processor.to_dict(), sort_keys=True, default=str).encode())
        return whole.hexdigest()

    @property
    def lock(self) -> AbstractContextManager[None]:
        """The lock of the module: it excludes all others who use the module, or a part of it, through Headscope."""
        return modules.exclusive(self.module)

    @property
    def bytes(self) -> int:
        """Memory of the parameters and buffers."""
        return sum(t.numel() * t.element_size() for t in (*self.module.parameters(), *self.module.buffers()))

    @property
    def width(self) -> int:
        """Width of the hidden states (of the decoder, where the stacks differ)."""
        config = self.module.config
        for part in (config, getattr(config, "text_config", None), getattr(config, "decoder", None)):
            for name in ("hidden_size", "d_model"):
                if isinstance(found := getattr(part, name, None), int):
                    return found
        return 0

    @property
    def vocabulary(self) -> int:
        """Number of token ids the embedding knows. Raises Unsupported for models that have none."""
        try:
            return int(self.module.get_input_embeddings().weight.shape[0])
        except (AttributeError, NotImplementedError):
            known = getattr(self.module.config, "vocab_size", None)
            if isinstance(known, int) and known > 0:
                return known
            raise Unsupported(
                "This model does not read token ids from a vocabulary, so it cannot be analysed."
            ) from None

    @property
    def missing(self) -> dict[str, str]:
        """Need -> why it cannot be met, as far as the tokens decide it."""
        return {"kinds": NO_KINDS} if self.tokenizer is None and self.facts.kind != "vision" else {}

    @property
    def listens(self) -> bool:
        """Whether its encoder takes sound, so that only its decoder can be analysed."""
        return self.facts.kind == "encoder-decoder" and getattr(self.module, "main_input_name", "") == "input_features"

    def encode(
        self,
        text: str | None = None,
        text_pair: str | None = None,
        *,
        token_ids: list[int] | None = None,
        target_ids: list[int] | None = None,
        max_tokens: int | None = None,
        image: Any = None,
        kind: Kind = "self",
        generate: Generate | None = None,
        pos: list[str] | None = None,
        labels: list[str] | None = None,
    ) -> Encoded:
        """An input to tokens: a text or two, ids, or an image (what images.read takes).

        Of an encoder-decoder, `text` is what the encoder reads and `text_pair` what the decoder reads, which starts with the model's start token;
        `target_ids` are taken as they are. `generate` lets the model write the rest of the text, or the decoder's text. `pos` and `labels` have one
        entry per word, or one per token.

        Raises InvalidText, InvalidImage, TooManyTokens, InvalidRequest or Unsupported.
        """
        self.facts.tower(kind)
        asked = _Asked(text, text_pair, token_ids, target_ids, max_tokens, image, kind, generate)
        if self.facts.kind == "vision":
            encoded = self._see(asked)
        elif image is not None:
            raise Unsupported("This model is analysed on text. Choose a vision model for an image.", pointer="/image")
        elif self.listens:
            encoded = self._write_in_silence(asked)
        elif self.facts.kind == "encoder-decoder":
            encoded = self._translate(asked)
        else:
            encoded = self._read(asked)
        return tokens.annotate(encoded, pos, labels)

    def _see(self, asked: _Asked) -> Encoded:
        if asked.image is None or asked.text is not None or asked.token_ids is not None:
            raise InvalidRequest("This is a vision model. Give it an image, and no text.", pointer="/image")
        if asked.generate is not None:
            raise Unsupported("A vision model writes no text. Leave generate out.", pointer="/generate")
        patches = self.facts.patches
        if patches is None:
            raise Unsupported("It is not known how this model cuts images into patches.", pointer="/model")
        channels = int(getattr(self.module.config, "num_channels", 3) or 3)
        pixels = images.prepare(asked.image, self.processor, patches, channels)
        warnings = () if self.processor is not None else (_assumed(patches.size),)
        encoded = replace(
            images.encode(pixels, patches), picture=images.seen(pixels, self.processor), warnings=warnings
        )
        if pixels.shape[1] != channels or len(encoded.tokens) > LARGER * patches.tokens:
            raise Unsupported(
                "The image processor makes images that this model was not made for. Load the model with its own.",
                pointer="/model",
            )
        if asked.max_tokens is not None and asked.max_tokens < len(encoded.tokens):
            raise InvalidRequest("An image can't be cut to fewer tokens. Leave max_tokens out.", pointer="/max_tokens")
        return encoded

    def _read(self, asked: _Asked) -> Encoded:
        """A text, or two, through a model of one stack."""
        if asked.target_ids is not None:
            raise InvalidRequest("Only encoder-decoder models take target_ids.", pointer="/target_ids")
        if asked.generate is not None and self.facts.kind != "decoder":
            raise Unsupported(
                "This model can't continue a text: only decoders can. Leave generate out.", pointer="/generate"
            )
        if asked.generate is not None and asked.text_pair is not None:
            raise InvalidRequest("The model continues one text. Leave the second one out.", pointer="/text_pair")
        encoded = self._source(asked, asked.text_pair)
        tokens.check_length(len(encoded.tokens), self.facts.max_tokens)
        return encoded if asked.generate is None else self._continue(encoded, asked.generate, asked.text is None)

    def _source(self, asked: _Asked, text_pair: str | None = None) -> Encoded:
        if asked.token_ids is not None:
            return tokens.from_ids(
                self.tokenizer, asked.token_ids[: asked.max_tokens], self.special_ids, self.vocabulary
            )
        if asked.text is None:
            raise InvalidRequest("Give a text, or token_ids.", pointer="/text")
        return self._tokenize(self.tokenizer, asked.text, text_pair, asked.max_tokens)

    def _tokenize(
        self, tokenizer: Tokenizer | None, text: str, text_pair: str | None, most: int | None, pointer: str = "/text"
    ) -> Encoded:
        if tokenizer is None:
            raise Unsupported(self.no_tokenizer, pointer="/model")
        tokens.check_text(text, pointer)
        if text_pair is not None:
            tokens.check_text(text_pair, "/text_pair")
        return tokens.encode(tokenizer, text, text_pair, unknown=self.unknown, max_tokens=most)

    def _continue(self, encoded: Encoded, generate: Generate, by_ids: bool) -> Encoded:
        before = [token.id for token in encoded.tokens]
        added = self._write(encoded, generate, self.facts.max_tokens, len(before))[len(before) :]
        if by_ids or self.tokenizer is None:
            found = tokens.from_ids(self.tokenizer, [*before, *added], self.special_ids, self.vocabulary)
            return replace(found, generated=len(added))
        return tokens.extend(self.tokenizer, encoded, added, self.special_ids, self.unknown)

    def _write(self, encoded: Encoded, generate: Generate, most: int | None, used: int) -> list[int]:
        support.check_writing(self.facts)
        room = generate.max_new_tokens if most is None else most - used
        if room < 1:
            raise TooManyTokens(
                f"The text fills all {most} tokens that the model takes, so there is no room to continue it. Shorten it.",
                pointer="/text",
                limit=most,
                actual=used + 1,
            )
        inputs = self.inputs(encoded)
        inputs.pop("decoder_input_ids", None)
        with self.lock:
            return generation.write(self.module, inputs, generate, room)

    def _translate(self, asked: _Asked) -> Encoded:
        """A text through the encoder and, unless only that is looked at, another one through the decoder."""
        given = [asked.text_pair, asked.target_ids, asked.generate]
        if sum(value is not None for value in given) > 1:
            raise InvalidRequest(
                "The decoder reads one text: a second text, target_ids, or what generate lets the model write.",
                pointer="/text_pair",
            )
        source = self._source(asked)
        tokens.check_length(len(source.tokens), self.facts.tower("encoder").max_tokens)
        encoded = self._with_target(source, asked)
        if encoded.target is None and asked.kind in ("decoder", "cross"):
            raise InvalidRequest(
                "The decoder needs a text of its own. Give a second text, or let the model write it (generate).",
                pointer="/text_pair",
            )
        return encoded

    def _with_target(self, source: Encoded, asked: _Asked) -> Encoded:
        most = self.facts.tower("decoder").max_tokens
        if asked.target_ids is not None:
            ids = asked.target_ids[: asked.max_tokens]
            found = tokens.from_ids(self.tokenizer, ids, self.special_ids, self.vocabulary, "/target_ids")
        elif asked.text_pair is not None:
            found = self._dictated(asked.text_pair, asked.max_tokens, "/text_pair")
        elif asked.generate is not None:
            start, *added = self._write(source, asked.generate, most, 1)
            found = self._spelled(start, added)
        else:
            return source
        tokens.check_length(len(found.tokens), most, "/text_pair")
        target = tokens.as_target(found.tokens, source.tokens)
        return replace(source, target=target, target_text=found.text, generated=found.generated)

    def _dictated(self, text: str, most: int | None, pointer: str) -> Encoded:
        """A text as the decoder reads it when the model is trained: moved one place on, after the start token."""
        found = self._tokenize(self.target_tokenizer or self.tokenizer, text, None, most, pointer)
        listed = found.tokens
        if self.listens and listed and listed[0].id == self._start:
            listed = listed[1:]
        if not listed or listed[-1].kind != "special":
            listed = [*listed, Token("", self._end, 0, 0, None, 0, "special")]  # what the shift will drop
        ids = self._shifted([token.id for token in listed])
        return replace(found, tokens=[self._special(ids[0]), *listed[:-1]][:most])

    def _shifted(self, labels: list[int]) -> list[int]:
        """The decoder's input for these labels, by the model's own rule where it has one."""
        own = getattr(self.module, "prepare_decoder_input_ids_from_labels", None)
        if callable(own):
            with torch.inference_mode():
                shifted: list[int] = own(labels=torch.tensor([labels], device=self.module.device))[0].tolist()
            if shifted[1:] == labels[:-1]:
                return shifted
        return [self._start, *labels[:-1]]

    def _spelled(self, start: int, added: list[int]) -> Encoded:
        """What the model wrote after its start token."""
        if self.tokenizer is None:
            found = tokens.from_ids(None, [start, *added], self.special_ids, self.vocabulary)
            return replace(found, generated=len(added))
        first = Encoded([self._special(start)], [0], text="")
        writing = self.target_tokenizer or self.tokenizer
        return tokens.extend(writing, first, added, self.special_ids | {start}, self.unknown)

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

    def _write_in_silence(self, asked: _Asked) -> Encoded:
        """A text through the decoder of a model that listens, which is given silence to listen to."""
        if asked.kind != "decoder":
            raise Unsupported(
                'This model\'s encoder takes sound, and Headscope takes none. Its decoder can be analysed on a text: ask for kind "decoder".',
                pointer="/kind",
            )
        if asked.generate is not None:
            raise Unsupported("Without sound this model has nothing to write. Leave generate out.", pointer="/generate")
        ids = asked.target_ids if asked.target_ids is not None else asked.token_ids
        text = asked.text if asked.text is not None else asked.text_pair
        if ids is not None:
            found = tokens.from_ids(self.tokenizer, ids[: asked.max_tokens], self.special_ids, self.vocabulary)
        elif text is not None:
            found = self._dictated(text, asked.max_tokens, "/text")
        else:
            raise InvalidRequest("Give a text, or token_ids.", pointer="/text")
        tokens.check_length(len(found.tokens), self.facts.tower("decoder").max_tokens)
        warned = ResultWarning(
            "no-audio", "The decoder attends to itself as it would after silence: the model was given no sound."
        )
        target = tokens.as_target(found.tokens, [])
        return replace(self._silence, target=target, target_text=found.text, warnings=(warned,))

    @cached_property
    def _silence(self) -> Encoded:
        """What the encoder makes of silence. It is run once and by itself: its own attention, thousands of frames wide, is not looked at."""
        config = self.module.config
        shape = (1, config.num_mel_bins, 2 * config.max_source_positions)
        with self.lock, self.using("float32"), modules.evaluating(self.module), torch.inference_mode():
            features = torch.full(shape, SILENCE, device=self.module.device)
            heard = self.module.get_encoder()(features).last_hidden_state
        frames = [Token(f"[{index}]", index, 0, 0, None, 0, "special") for index in range(heard.shape[1])]
        return Encoded(frames, [0] * len(frames), heard=heard)

    def inputs(self, encoded: Encoded) -> dict[str, Any]:
        """The arguments of the forward pass for one input: batch of one, nothing padded."""
        device = self.module.device
        if encoded.pixels is not None:
            return self._image_inputs(encoded)
        if encoded.heard is not None:
            arguments: dict[str, Any] = {"encoder_outputs": (encoded.heard.to(device, self.module.dtype),)}
        else:
            ids = torch.tensor([[token.id for token in encoded.tokens]], device=device)
            arguments = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if self.facts.kind == "encoder-decoder":
            # Without a text the decoder still has to run; it reads its start token.
            read = [token.id for token in encoded.target] if encoded.target else [self._start]
            arguments["decoder_input_ids"] = torch.tensor([read], device=device)
        # Without an embedding of their own, types are read as something else: as words by GPT-2 and XLM, as the end of an image by PaliGemma.
        types = getattr(self.module.config, "type_vocab_size", None)
        if types and "token_type_ids" in self._accepted and self.facts.kind == "encoder":
            most = int(types) - 1
            arguments["token_type_ids"] = torch.tensor([encoded.type_ids], device=device).clamp_max(most)
        return arguments

    def _image_inputs(self, encoded: Encoded) -> dict[str, Any]:
        pixels = encoded.pixels.to(self.module.device, self.module.dtype) if encoded.pixels is not None else None
        arguments: dict[str, Any] = {"pixel_values": pixels}
        known = self.facts.patches
        if known and encoded.grid and encoded.grid.size != known.size and "interpolate_pos_encoding" in self._accepted:
            arguments["interpolate_pos_encoding"] = True  # as the model does it itself for images of another size
        return arguments

    @cached_property
    def _accepted(self) -> frozenset[str]:
        return frozenset(inspect.signature(self.module.forward).parameters)

    def probe(self, seed: int = 0) -> Encoded:
        """A short fixed input of the model's kind: what it computes on it is compared with its own eager attention."""
        generator = torch.Generator().manual_seed(seed)
        if self.facts.kind == "vision" and self.facts.patches:
            width, height = self.facts.patches.size
            picture = torch.randint(256, (height, width, 3), generator=generator, dtype=torch.uint8).numpy()
            return self.encode(image=picture)
        window = int(self.module.config.to_dict().get("sliding_window") or 0)
        count = PROBE + (window if window <= 64 else 0)  # long enough for a small window to cut something off
        source = self._random(count, self.facts.max_tokens, generator)
        if self.facts.kind != "encoder-decoder":
            return source
        target = self._random(PROBE_TARGET, self.facts.tower("decoder").max_tokens, generator).tokens
        return replace(self._silence if self.listens else source, target=target)

    def _random(self, count: int, most: int | None, generator: torch.Generator) -> Encoded:
        ids = torch.randint(self.vocabulary, (min(count, most or count),), generator=generator).tolist()
        return tokens.from_ids(None, ids, frozenset(), self.vocabulary)

    def using(self, dtype: str) -> AbstractContextManager[None]:
        """Within this context the module computes in `dtype`, whatever its own types are. Hold the lock."""
        if dtype not in DTYPES:
            raise InvalidRequest(f"dtype is one of {', '.join(DTYPES)}.", pointer="/dtype")
        return modules.converted(self.module, DTYPES[dtype])


def _assumed(size: tuple[int, int]) -> ResultWarning:
    """What to know of an image that is prepared for a model without an image processor."""
    return ResultWarning(
        "no-image-processor",
        f"The model came without an image processor, so the image was scaled to {size[0]} x {size[1]} pixels and its values to -1..1. "
        "If the model was trained on images prepared otherwise, load it with its processor.",
    )


def _print_of(part: torch.Tensor) -> tuple[int, int, float]:
    """Where a tensor lies, how often it was written to, and its sum: whoever writes past the count of writing, by `.data`, changes the sum."""
    numbers = part.view(torch.uint8) if part.element_size() == 1 else part
    written = 0 if part.is_inference() else part._version  # noqa: SLF001 - torch has no other name for it
    return part.data_ptr(), written, float(numbers.sum(dtype=torch.float64))
