"""Writes families.py and defaults.json in backend/headscope/models from the tables and configurations of the transformers that is installed.

python -m tests.support.families
"""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

from transformers import CONFIG_MAPPING
from transformers.models.auto import modeling_auto

from headscope.models import facts

MODELS = Path(__file__).resolve().parents[2] / "backend" / "headscope" / "models"

WHAT = {
    "DECODERS": "Text models in which a token sees itself and tokens before it only.",
    "ENCODERS": "Text models that fill in masks: every token sees all others, unless their configuration makes decoders of them.",
    "ENCODER_DECODERS": "Models with two stacks, of which the second reads text.",
    "AUDIO": "Models that listen, or speak.",
    "READERS": "Models that read images and texts and write text.",
    "IMAGES": "Models of images. Which of them attend from patch to patch is a table of its own (facts.PREFIXES).",
}
HEAD = '''"""Which kind of model a family is, by model_type. Written by tests/support/families.py from the tables of transformers; not to be edited."""

from __future__ import annotations
'''
# Read their input from a microphone, in spite of what transformers files them under.
LISTENING = {"audioflamingo3", "glmasr", "moss_transcribe_diarize", "musicflamingo", "nemo_speechlm", "qwen2_audio"}
# They generate text, and yet every token sees all others unless told otherwise.
BOTH_WAYS = {"bert-generation", "xlnet"}
# Towers of models that pair images with texts; transformers lists only the pairs.
CAUSAL_TOWERS = {"clip_text_model", "metaclip_2_text_model"}


def families(*purposes: str) -> set[str]:
    """Model types that have a class for one of these purposes."""
    return {name for purpose in purposes for name in getattr(modeling_auto, f"MODEL_FOR_{purpose}_MAPPING_NAMES")}


def table() -> dict[str, set[str]]:
    """Name of a set -> model types."""
    causal, masked, pairs = families("CAUSAL_LM"), families("MASKED_LM"), families("SEQ_TO_SEQ_CAUSAL_LM")
    audio = families("AUDIO_CLASSIFICATION", "CTC", "AUDIO_XVECTOR", "TEXT_TO_WAVEFORM", "TEXT_TO_SPECTROGRAM", "SPEECH_SEQ_2_SEQ")  # fmt: skip
    audio = (audio | LISTENING) - {"whisper"}
    images = families("IMAGE_CLASSIFICATION", "BACKBONE", "MASKED_IMAGE_MODELING", "SEMANTIC_SEGMENTATION")
    images |= families("OBJECT_DETECTION", "IMAGE_SEGMENTATION", "DEPTH_ESTIMATION", "KEYPOINT_DETECTION")
    pairs = (pairs | {"whisper"}) - audio
    return {
        "DECODERS": (causal - masked - pairs - audio - BOTH_WAYS) | CAUSAL_TOWERS,
        "ENCODERS": (masked - pairs) | BOTH_WAYS,
        "ENCODER_DECODERS": pairs,
        "AUDIO": audio,
        "READERS": families("IMAGE_TEXT_TO_TEXT", "MULTIMODAL_LM") - causal - masked - pairs - audio,
        "IMAGES": images - causal - masked - audio,
    }


def parts() -> list[str]:
    """Model types that may be a part of another model."""
    made, known = table(), set(CONFIG_MAPPING.keys())
    texts = {name for name in known if "text" in name} | made["DECODERS"] | made["ENCODERS"]
    return sorted((texts & known) | {f"{family}_vision_model" for family in facts.PAIRED})


def defaults(types: list[str]) -> dict[str, dict[str, int]]:
    """Model type -> name in its configuration -> value that transformers takes where a part of that type omits it.

    From the fields of its class: what a configuration computes from other values is no default.
    """
    found = {name: _numbers(CONFIG_MAPPING[name], facts.DEFAULTED) for name in types}
    return {name: numbers for name, numbers in found.items() if numbers}


def _numbers(cls: type, names: tuple[str, ...]) -> dict[str, int]:
    return {name: value for name in names if type(value := getattr(cls, name, None)) is int}


def main() -> None:
    """Write both files."""
    module = [HEAD]
    for name, members in table().items():
        body = textwrap.fill(" ".join(sorted(members)), 118, break_on_hyphens=False, break_long_words=False)
        module.append(
            f'# {WHAT[name]}\n{name} = frozenset(\n    """\n{body}\n""".split()  # noqa: SIM905 - a table of words\n)'
        )
    (MODELS / "families.py").write_text("\n".join(module) + "\n")
    lines = [f"{json.dumps(name)}: {json.dumps(numbers)}" for name, numbers in defaults(parts()).items()]
    (MODELS / "defaults.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
