"""What is refused before a model is loaded is refused once it is, too, for the same reason."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import headscope
from headscope.analysis.request import AnalysisRequest, check_capabilities, explain_missing
from headscope.capture import examine
from headscope.core.attention import Kind
from headscope.core.declarations import CAPABILITIES
from headscope.errors import HeadscopeError, InvalidRequest, ModelNotExact, Unsupported
from headscope.lenses import LENSES
from headscope.models import facts, support
from headscope.models.facts import Facts
from tests.support.models import Family, tiny_model
from tests.support.variants import variants
from tests.sweep.build import build


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "t5", "vit"])
def test_early_reasons_are_those_of_the_model(tmp_path: Path, family: Family) -> None:
    """Per kind of attention: never more than the loaded model lacks, in its words; and the mask's reasons always."""
    model = headscope.load(tiny_model(tmp_path / family, family))
    sites = examine(model)
    for kind in model.facts.kinds:
        early, late = support.find_missing(model.facts, kind), sites.missing(kind)
        assert early.items() <= late.items()
        masks = {need for group in (support.CROSS, support.CAUSAL, support.NOT_CAUSAL) for need in group}
        assert set(late) & masks == set(early) & masks


def test_needs_are_known() -> None:
    """The table of families and the tables of masks name needs that there are."""
    for table in (support.CROSS, support.CAUSAL, support.NOT_CAUSAL):
        assert set(table) <= set(CAPABILITIES)
    headless = Facts("no-such-family", "encoder", 2, 4, 8, 512)
    assert support.find_missing(headless, "self") == {**support.NOT_CAUSAL, "unembedding": support.NO_TOKENS}
    assert support.find_missing(replace(headless, predicts="masked-token"), "self") == support.NOT_CAUSAL


def test_a_kind_that_is_not_there() -> None:
    """Only encoder-decoders have several kinds of attention."""
    with pytest.raises(Unsupported):
        support.find_missing(Facts("bert", "encoder", 2, 4, 8, 512), "cross")


@pytest.mark.parametrize("kind", ["self", "encoder"])
def test_a_kind_that_is_refused_although_others_are_not(kind: Kind) -> None:
    """The encoder of Pegasus-X attends in blocks: the model's card knows as early as the loaded model that no method works there, and why."""
    model = headscope.load(build("pegasus_x").module)
    early = support.find_missing(model.facts, kind)
    assert set(early) == set(CAPABILITIES)
    methods = (headscope.MECHANISMS, LENSES, headscope.MEASURES, headscope.EFFECTS)
    assert all(explain_missing(method, early) for group in methods for method in group.values())
    given = {"token_ids": [5, 6, 7, 8], "target_ids": [5, 6, 7]}
    with pytest.raises(ModelNotExact) as refused:
        headscope.analyze(model, kind=kind, **given)
    assert {refused.value.detail} == set(early.values())
    assert headscope.analyze(model, kind="cross", **given).maps["weights"].shape[-2:] == (3, 4)
    assert "capture" not in support.find_missing(model.facts, "cross")


def test_a_measure_lacks_what_its_lenses_lack() -> None:
    """The reason of a lens that a measure reads is the measure's."""
    mixing = headscope.MEASURES["mixing_ratio"]
    lacking = {"same-tokens": "Because."}
    assert explain_missing(mixing, lacking) == explain_missing(LENSES["norm-residual"], lacking) == "Because."
    assert explain_missing(headscope.MEASURES["entropy"], lacking) is None
    with pytest.raises(Unsupported) as refused:
        check_capabilities([headscope.MECHANISMS["jump"]], lacking)
    assert refused.value.pointer == "/mechanism"


@dataclass
class Given:
    """An input, as far as it is looked at early."""

    kind: Kind = "self"
    text: str | None = "a"
    text_pair: str | None = None
    messages: Any = None
    token_ids: list[int] | None = None
    target_ids: list[int] | None = None
    image: Any = None
    generate: Any = None


@variants(
    ("model", "given", "pointer"),
    [
        ("vision", Given(), "/image"),
        ("vision", Given(image="x", text=None, generate="x"), "/generate"),
        ("encoder", Given(image="x", text=None), "/image"),
        ("encoder", Given(generate="x"), "/generate"),
        ("decoder", Given(target_ids=[1]), "/target_ids"),
        ("encoder-decoder", Given(kind="cross"), "/text_pair"),
        ("encoder-decoder", Given(kind="decoder"), "/text_pair"),
    ],
    ids=str,
)
def test_inputs_that_do_not_suit(model: Any, given: Given, pointer: str) -> None:
    """Told by the kind of model alone, with the field that is wrong."""
    with pytest.raises((InvalidRequest, Unsupported)) as refused:
        support.check_input(Facts("family", model, 2, 4, 8, None), given)
    assert refused.value.pointer == pointer


def test_inputs_that_suit() -> None:
    """Nothing is refused that a model may take: a model that listens has its decoder's text in `text`."""
    support.check_input(Facts("whisper", "encoder-decoder", 2, 4, 8, None), Given(kind="decoder"))
    support.check_input(Facts("t5", "encoder-decoder", 2, 4, 8, None), Given(kind="cross", generate="x"))
    support.check_input(Facts("gpt2", "decoder", 2, 4, 8, None), Given(generate="x"))


def test_a_stored_request_names_its_image_only() -> None:
    """By its SHA-256, and the same again when it is stored once more; the id is that of the image itself."""
    request = AnalysisRequest(model="vit", image="aGVhZHNjb3Bl")
    again = AnalysisRequest.model_validate(request.record)
    assert request.record["image"].startswith("sha256:")
    assert again.record == request.record
    assert again.key("digest") != request.key("digest")


def test_errors_say_what_and_why() -> None:
    """The method's title, then the reason."""
    with pytest.raises(HeadscopeError, match=r"^Rollout is not available for this model. In cross-attention"):
        check_capabilities([LENSES["rollout"]], support.CROSS)


def test_images_beside_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The record of a family is known before its model is loaded; families without one are examined when they are."""
    llama = Facts("llama", "decoder", 2, 4, 8, None)
    for family in ("llava", "idefics2", "got_ocr2", "newer_than_the_table", ""):
        assert support.reads_both(replace(llama, image_text=family)) == bool(family)
    with monkeypatch.context() as patch:
        patch.setattr(support, "_families", lambda: {"llava": {"image": "Its tiles overlap."}})
        assert not support.reads_both(replace(llama, image_text="llava"))
        with pytest.raises(Unsupported, match=r"Its tiles overlap\."):
            support.check_input(replace(llama, image_text="llava"), Given(image=b""))
    support.check_input(replace(llama, image_text="llava"), Given(image=b""))
    with pytest.raises(InvalidRequest, match="Give a text too"):
        support.check_input(replace(llama, image_text="llava"), Given(image=b"", text=None))


@pytest.mark.parametrize("family", ["bert", "gpt2", "t5", "vit"])
def test_what_a_model_predicts(tmp_path: Path, family: Family) -> None:
    """As the configuration says, a loaded model has a head for tokens or not; the reason is about the kind of attention, too."""
    model = headscope.load(tiny_model(tmp_path / family, family))
    expected = {"gpt2": "next-token", "t5": "next-token"}.get(family)
    assert model.facts.predicts == expected
    assert (model.module.get_output_embeddings() is not None) == (expected is not None)
    for of, expected in (
        ("prediction", {"gpt2": [None], "t5": [support.BEFORE_DECODER, None, None]}.get(family, [support.NO_HEAD])),
        ("score", [None] * len(model.facts.kinds)),
    ):
        assert [support.explain_silence(model.facts, kind, of) for kind in model.facts.kinds] == expected  # type: ignore[arg-type]


def test_what_the_classes_of_transformers_predict() -> None:
    """Masked tokens in the place of an encoder's, the next token after a decoder's, one class for a whole input."""
    for name, kind, expected in (
        ("BertForMaskedLM", "encoder", "masked-token"),
        ("BertForPreTraining", "encoder", "masked-token"),
        ("XLMWithLMHeadModel", "encoder", "masked-token"),
        ("ElectraForPreTraining", "encoder", None),
        ("BertForSequenceClassification", "encoder", "class"),
        ("BertForQuestionAnswering", "encoder", None),
        ("ViTForImageClassification", "vision", "class"),
        ("ViTForMaskedImageModeling", "vision", None),
        ("LlamaForCausalLM", "decoder", "next-token"),
        ("MarianMTModel", "encoder-decoder", "next-token"),
        ("MarianModel", "encoder-decoder", None),
    ):
        family = {"encoder": "bert", "vision": "vit", "decoder": "llama", "encoder-decoder": "marian"}[kind]
        shape = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 8, "patch_size": 4}
        config = {
            **shape,
            "model_type": family,
            "architectures": [name],
            "is_encoder_decoder": kind == "encoder-decoder",
        }
        found = facts.read(config)
        assert (found.kind, found.predicts) == (kind, expected), name
