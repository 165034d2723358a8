"""The model card of a twin: what it is, its data, its evaluation, and its limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TEXT = """English running text of about 110 MB (novels and stories of 1840-1928 in the public domain; OpenStax textbooks, CC BY 4.0, Rice University; blogs and
documents of US authorities in the public domain; technical documents under CC0, CC BY 4.0, MIT or Apache 2.0)"""
DATA = {
    "english": f"{TEXT}.",
    "reviews": "The sentences of SST-2's training data (no licence stated; research use) and the reviews in the training data of the English Web Treebank (CC BY-SA 4.0).",
    "images": "CIFAR-10's 50,000 training images (no licence stated; research use). No image is shipped.",
    "sentences": "The 6,920 sentences of SST-2's training data (no licence stated; research use). No sentence is shipped. The body was trained on english running text before.",
    "words": "WikiGold (CC BY 4.0) and WNUT-17 (CC BY 4.0), with the entity types that both have: person, location, organisation. The body was trained on "
    "english running text before.",
}
WORDS = {
    "softmax": "plain softmax attention",
    "hopfield": "Hopfield attention (Masumura & Taki 2025)",
    "jump": "jump attention (Zhou et al. 2022)",
    "pasta": "softmax attention and vectors added to its special tokens (PASTA, Yang et al. 2023)",
}
NAMES = {
    "loss": "loss (nats per label)",
    "bits_per_byte": "bits per byte",
    "accuracy": "accuracy",
    "f1": "F1 of entities",
}
OBJECTIVES = {
    "masked-lm": "tells masked tokens of a text from the others",
    "causal-lm": "tells each token of a text from those before it",
    "images": "tells what an image of 32 × 32 pixels shows",
    "sentences": "tells whether a review is positive",
    "words": "tells which words name persons, locations and organisations",
}


def card(name: str, measured: Mapping[str, Any]) -> str:
    """Return the card as Markdown; `measured` is the content of evaluation.json."""
    recipe = measured["recipe"]
    mechanism, objective = recipe["mechanism"], recipe["objective"]
    kind = "pasta" if recipe["learn"] == "pasta" else mechanism["name"]
    of = recipe["text"] if objective in ("masked-lm", "causal-lm") else objective
    seen = "images" if objective == "images" else "tokens"
    rows = [
        f"| {title} | {measured['held_out'][key]:.4f} | {measured['baseline'][key]:.4f} |" if key in measured["baseline"]
        else f"| {title} | {measured['held_out'][key]:.4f} | - |"
        for key, title in NAMES.items()
        if key in measured["held_out"]
    ]  # fmt: skip
    warned = (
        ""
        if kind == "softmax"
        else "\nWithout Headscope transformers computes plain softmax attention with these weights, which is not this model. It warns of a tensor it does not know.\n"
    )
    return f"""# {name}

A small model that {OBJECTIVES[objective]}, with {WORDS[kind]}: one of a family of twins that were trained alike and differ in how they attend, so that their heads can be
compared. It is made to be looked at, not to be used: it is hundreds of times smaller than models that are any good.
{warned}
- **Trained on**: {DATA[of]}
- **How**: {recipe["steps"]:,} steps, {recipe["tokens"]:,} {seen}, {recipe["parameters"]:,} parameters learned, seed {recipe["seed"]}; the command is in `models/runs`, all
  settings and figures are in `evaluation.json`, the loss on the way in `curve.csv`.
- **Weights**: float16. Apache-2.0, as far as weights can be licensed; see the licences of the data above.

On {measured["held_out"]["labels"]:,} labels held out:

| | this model | without a model |
| --- | --- | --- |
{chr(10).join(rows)}

"Without a model" gives every label the probability that it has in the training data.
"""
