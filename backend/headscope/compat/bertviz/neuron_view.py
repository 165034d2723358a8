"""`show` of BertViz's neuron view: a model and one or two sentences instead of attention weights."""

from __future__ import annotations

from typing import Any

from ...errors import InvalidRequest
from ...library.analysis import analyze, load
from ...library.notebook import NotebookView
from ..views import AttentionView, check_choice, deliver


def show(
    model: Any,
    model_type: str,
    tokenizer: Any,
    sentence_a: str,
    sentence_b: str | None = None,
    display_mode: str = "dark",
    layer: int | None = None,
    head: int | None = None,
    html_action: str = "view",
) -> AttentionView | None:
    """Show the attention weights of any model that Headscope loads.

    `model` is a PreTrainedModel of transformers, not BertViz's own copy; `model_type` is not needed and ignored. The head to open is `layer`.`head`, 0.0 by
    default. Products of single neurons are not shown; headscope.effect with the method "score" takes the score of a cell apart. Raises what load and analyze
    raise.
    """
    check_choice(display_mode, ("dark", "light"), "display_mode")
    a = analyze(load(model, tokenizer), sentence_a, sentence_b or None, lenses=("weights",))
    opened = f"{layer or 0}.{head or 0}"
    if opened not in a.head_names:
        raise InvalidRequest("The model has no such head. Choose another layer and head.", pointer="/head")
    viewer = NotebookView(a.id, a.source, {"head": opened, "theme": display_mode})
    return deliver(AttentionView({"": viewer}), html_action)
