"""Tiny random models with tokenizers trained on the spot, saved like any model of the hub."""

from __future__ import annotations

import json
import re
import string
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

Family = Literal["bert", "gpt2", "llama", "t5", "vit"]
# A mechanism of a twin, and with all of its parameters, as in documents.
HOPFIELD = {"name": "hopfield", "alpha": 0.5}
HOPFIELD_IN_FULL = {**HOPFIELD, "initial": "zero"}
CORPUS = [
    "The cat sat on the mat because it was tired.",
    "A researcher types a sentence and sees what every head attends to.",
    "Heads differ: some look back, some look at commas, some look at nothing.",
]


@cache
def wordpiece() -> Any:
    """A lowercase BERT tokenizer that knows every printable ASCII character."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    alphabet = [char for char in string.printable if not char.isspace()]
    # A trainer would break ties at random: a process would have other tokens, and so another model, than the next one.
    words = sorted({word for line in CORPUS for word in re.findall(r"\w+", line.lower())} - set(alphabet))
    pieces = [*special, *alphabet, *(f"##{char}" for char in alphabet), *words]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pair = [(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=pair
    )
    names = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}
    return _fast(tokenizer, **names)


@cache
def byte_bpe() -> Any:
    """A byte-level BPE tokenizer, which takes any text there is."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return _fast(tokenizer, eos_token="<|endoftext|>", bos_token="<|endoftext|>")


def _fast(tokenizer: Any, **names: str) -> Any:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


def tiny_model(
    folder: Path,
    family: Family = "bert",
    *,
    layers: int = 2,
    heads: int = 4,
    width: int = 32,
    inner: int | None = None,
    positions: int = 256,
    seed: int = 0,
    spread: float = 0.02,
) -> Path:
    """Save a random model of that family in `folder` and return it. Heads are `width // heads` wide, MLPs `inner`, by default twice the width of the model.

    With a larger `spread` of its weights, heads choose among tokens.
    """
    import torch
    import transformers

    inner = inner or 2 * width
    tokenizer = wordpiece() if family == "bert" else byte_bpe()
    shape = {
        "vocab_size": len(tokenizer),
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "max_position_embeddings": positions,
    }
    special = {"bos_token_id": 0, "eos_token_id": 0}
    torch.manual_seed(seed)
    if family == "bert":
        config = transformers.BertConfig(**shape, intermediate_size=inner, type_vocab_size=2, initializer_range=spread)
        model = transformers.BertModel(config)
    elif family == "vit":
        config = transformers.ViTConfig(
            hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=inner,
            image_size=32, patch_size=8,
        )  # fmt: skip
        transformers.ViTModel(config, add_pooling_layer=False).save_pretrained(folder)
        return folder
    elif family == "t5":
        config = transformers.T5Config(
            vocab_size=len(tokenizer), d_model=width, d_kv=width // heads, d_ff=inner, num_layers=layers,
            num_decoder_layers=layers + 1, num_heads=heads, decoder_start_token_id=0, pad_token_id=0, eos_token_id=0,
        )  # fmt: skip
        model = transformers.T5ForConditionalGeneration(config)
    elif family == "gpt2":
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**shape, **special))
    else:
        config = transformers.LlamaConfig(**shape, **special, num_key_value_heads=heads // 2, intermediate_size=inner)
        model = transformers.LlamaForCausalLM(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def tiny_reader(folder: Path) -> Path:
    """Save a small LLaVA, which reads an image of 16 patches beside a text, with its processor. A head has a sink among the patches of the page's cat."""
    import torch

    from tests.sweep.pictured import build

    built, processor = build("llava")
    with torch.no_grad():
        for name, parameter in built.module.named_parameters():
            if "language_model" in name and name.endswith("q_proj.weight"):
                parameter.mul_(4)
    built.module.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def small_models(folder: Path) -> Path:
    """A tiny model per family, `slow`, whose forward pass takes seconds, and two twins of the catalogue, in subfolders of `folder`; and a GGUF file, `chat`."""
    from tests.support.gguf_files import CHATML, write

    for family in get_args(Family):
        tiny_model(folder / family, family)
    write(folder / "chat.gguf", template=CHATML)
    tiny_model(folder / "slow", "gpt2", layers=120, width=64, heads=8, positions=1024)
    tiny_twin(folder / "twin-bert-softmax")
    tiny_twin(folder / "twin-bert-hopfield", mechanism=HOPFIELD)
    return folder


def tiny_twin(folder: Path, family: Family = "bert", mechanism: dict[str, Any] | None = None, **shape: int) -> Path:
    """The same random model as one that was trained with `mechanism`, in the format of those in models/twins: half precision, and a warning for other loaders."""
    import torch
    from safetensors.torch import load_file, save_file

    tiny_model(folder, family, **shape)
    weights = folder / "model.safetensors"
    tensors = {name: tensor.half() for name, tensor in load_file(weights).items()}
    if mechanism is not None:
        config = folder / "config.json"
        config.write_text(json.dumps({**json.loads(config.read_text()), "headscope": {"mechanism": mechanism}}))
        name = f"headscope.this_model_attends_by_{mechanism['name']}_load_it_with_headscope"
        tensors[name] = torch.zeros(1, dtype=torch.float16)
    save_file(tensors, weights, metadata={"format": "pt"})
    return folder
