"""A located model becomes a module in memory. The only place that calls from_pretrained."""

from __future__ import annotations

import hashlib
import inspect
import tempfile
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import RLock
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer
from transformers.models.auto import modeling_auto

from ..errors import (
    CorruptModel,
    HeadscopeError,
    InvalidRequest,
    ModelUnavailable,
    UnsafeModel,
    UnsafeWeights,
    Unsupported,
)
from . import facts, safety, tokens
from .catalog import Located

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16, "float16": torch.float16}
# Missing when a checkpoint of another task is read as the bare model, and not on the way of attention.
UNUSED = ("pooler.",)


@dataclass(eq=False)
class Model:
    """A model ready to be analysed: the module, its tokenizer, and what is known of it."""

    name: str
    module: Any
    tokenizer: Tokenizer | None
    facts: facts.Facts
    source: Located | None = None
    special_ids: frozenset[int] = frozenset()
    unknown: str | None = None
    exact: bool = False  # set once captured attention has been compared with the model's own
    lock: RLock = field(default_factory=RLock, repr=False)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the files, or for a model made in memory of its configuration, parameters and tokenizer."""
        if self.source is not None:
            return self.source.digest()
        whole = hashlib.sha256(self.module.config.to_json_string().encode())
        for name, tensor in self.module.state_dict().items():
            data = tensor.detach().cpu().contiguous()
            whole.update(f"{name}:{data.dtype}:{tuple(data.shape)};".encode())
            whole.update(data.flatten().view(torch.uint8).numpy().data)
        whole.update(self.tokenizer.to_str().encode() if self.tokenizer else b"")
        return whole.hexdigest()

    @property
    def bytes(self) -> int:
        """Memory of the parameters and buffers."""
        return sum(t.numel() * t.element_size() for t in (*self.module.parameters(), *self.module.buffers()))

    @property
    def dtype(self) -> str:
        """Name of the type the parameters have now."""
        return str(next(self.module.parameters()).dtype).removeprefix("torch.")

    @property
    def vocabulary(self) -> int:
        """Number of token ids the embedding knows."""
        return int(self.module.get_input_embeddings().weight.shape[0])

    def encode(
        self,
        text: str | None = None,
        text_pair: str | None = None,
        *,
        token_ids: list[int] | None = None,
        max_tokens: int | None = None,
    ) -> tokens.Encoded:
        """Text, or ids, to tokens. Raises InvalidText, TooManyTokens, InvalidRequest or Unsupported."""
        if token_ids is not None:
            encoded = tokens.from_ids(self.tokenizer, token_ids[:max_tokens], self.special_ids, self.vocabulary)
        elif text is None:
            raise InvalidRequest("Give a text, or token_ids.", pointer="/text")
        elif self.tokenizer is None:
            raise Unsupported("This model came without a tokenizer. Give token_ids, or load it with its tokenizer.")
        else:
            tokens.check_text(text)
            if text_pair is not None:
                tokens.check_text(text_pair, "/text_pair")
            encoded = tokens.encode(self.tokenizer, text, text_pair, unknown=self.unknown, max_tokens=max_tokens)
        tokens.check_length(len(encoded.tokens), self.facts.max_tokens)
        return encoded

    def inputs(self, encoded: tokens.Encoded) -> dict[str, torch.Tensor]:
        """The arguments of the forward pass for one input: batch of one, nothing padded."""
        device = self.module.device
        ids = torch.tensor([[token.id for token in encoded.tokens]], device=device)
        accepted = inspect.signature(self.module.forward).parameters
        arguments = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if "token_type_ids" in accepted and self.facts.kind == "encoder":
            most = int(getattr(self.module.config, "type_vocab_size", 1) or 1) - 1
            arguments["token_type_ids"] = torch.tensor([encoded.type_ids], device=device).clamp_max(most)
        return arguments

    def using(self, dtype: str) -> AbstractContextManager[None]:
        """Within this context the module computes in `dtype`."""
        if dtype not in DTYPES:
            raise InvalidRequest(f"dtype is one of {', '.join(DTYPES)}.", pointer="/dtype")
        return nullcontext() if dtype == self.dtype else _Converted(self.module, DTYPES[dtype])


class _Converted(AbstractContextManager[None]):
    """Swaps the parameters for converted copies and puts the very same tensors back."""

    def __init__(self, module: Any, dtype: torch.dtype) -> None:
        self._module, self._dtype = module, dtype

    def __enter__(self) -> None:
        tensors = [*self._module.parameters(), *self._module.buffers()]
        self._kept = [(tensor, tensor.data) for tensor in tensors if tensor.is_floating_point()]
        for tensor, data in self._kept:
            tensor.data = data.to(self._dtype)

    def __exit__(self, *_: object) -> None:
        for tensor, data in self._kept:
            tensor.data = data


def wrap(module: Any, tokenizer: Any = None, name: str | None = None) -> Model:
    """A model already in memory, with its tokenizer (a fast transformers tokenizer, or a tokenizers.Tokenizer)."""
    known = facts.read(module.config.to_dict())
    facts.check_kind(known.kind)
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if backend is not None and not isinstance(backend, Tokenizer):
        raise Unsupported("The tokenizer must be a fast one (one with exact character offsets).")
    return Model(
        name=name or module.config.name_or_path or type(module).__name__,
        module=module,
        tokenizer=tokens.prepare(backend) if backend else None,
        facts=known,
        special_ids=frozenset(getattr(tokenizer, "all_special_ids", ()) or ()),
        unknown=getattr(tokenizer, "unk_token", None),
    )


def load(located: Located, device: str | None = None) -> Model:
    """Read a model from its folder in float32, fetching it from the hub first where that is still to be done.

    Raises ModelUnavailable, UnsafeModel, UnsafeWeights, CorruptModel or Unsupported.
    """
    folder = located.folder or fetch(located)
    config = safety.check(folder)
    with tempfile.TemporaryDirectory(prefix="headscope-") as target:
        staged = safety.stage(folder, Path(target))
        module = _module(staged, _model_class(config))
        tokenizer = _tokenizer(staged)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    model = wrap(module.to(device).eval(), tokenizer, located.name)
    model.source = Located(located.name, folder, located.hub, located.revision)
    return model


def fetch(located: Located) -> Path:
    """Download the allowed files of a hub model into the hub's cache and return their folder."""
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(located.hub, revision=located.revision, allow_patterns=list(safety.ALLOWED)))
    except Exception as error:  # its own errors, the operating system's, and those of the HTTP library underneath
        raise ModelUnavailable(
            "The model is not on this machine and could not be fetched from the hub. "
            "Check the connection, or put the model's folder into a model folder."
        ) from error
    if not any(folder.glob("*.safetensors")):
        raise UnsafeWeights(
            "The model has no safetensors weights on the hub. Pickled ones can run code and are never fetched."
        )
    return folder


def _model_class(config: dict[str, Any]) -> Any:
    """The class its configuration names, if transformers knows it for that purpose; the bare model otherwise."""
    if config.get("model_type") not in transformers.CONFIG_MAPPING:
        raise UnsafeModel(
            "The model's architecture is not one that transformers knows, and code that comes with a model is never run."
        )
    offered: set[str] = set()
    for purpose in ("MODEL_FOR_CAUSAL_LM", "MODEL_FOR_MASKED_LM", "MODEL_FOR_PRETRAINING", "MODEL_FOR_SEQUENCE_CLASSIFICATION",
                    "MODEL_FOR_TOKEN_CLASSIFICATION", "MODEL_FOR_QUESTION_ANSWERING"):  # fmt: skip
        for names in getattr(modeling_auto, f"{purpose}_MAPPING_NAMES").values():
            offered.update([names] if isinstance(names, str) else names)
    named = next((name for name in config.get("architectures") or [] if name in offered), None)
    return getattr(transformers, named) if named else transformers.AutoModel


def _module(staged: Path, cls: Any) -> Any:
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    try:
        module, report = cls.from_pretrained(
            staged,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            dtype=torch.float32,
            attn_implementation="eager",
            output_loading_info=True,
        )
    except HeadscopeError:
        raise
    except (
        Exception
    ) as error:  # whatever transformers raises about files that passed our checks is a fault of the files
        raise CorruptModel("The model's files can't be read: its weights do not fit its configuration.") from error
    missing = [key for key in report["missing_keys"] if not any(part in key for part in UNUSED)]
    if missing or report["mismatched_keys"]:
        raise CorruptModel(
            f"{len(missing) + len(report['mismatched_keys'])} of the model's parameters are missing or of another shape in its weight files."
        )
    return module


def _tokenizer(staged: Path) -> Any:
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(staged, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # transformers raises many kinds here; all mean the same
        if not any(staged.glob("tokenizer*")) and not any(staged.glob("vocab*")):
            return None
        raise CorruptModel("The model's tokenizer can't be read.") from error
    return tokenizer
