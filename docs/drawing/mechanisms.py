"""Pictures of the mechanisms, and of the graph of jump attention."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import headscope

from . import samples
from .figure import Figure, coloured, number
from .shapes import MODEL, grid, panels, ticks


def draw_softmax() -> Figure:
    """Scores and weights of one query."""
    layer, head, word = 5, 3, "suitcase"
    a = samples.analysed(samples.SHORT)
    tokens = [token.text for token in a.tokens]
    row = a.maps["weights"][layer, head, tokens.index(word)].astype(float)
    scores = np.log(row / row.max())
    figure = Figure(760, 366, f"One query of head {layer}.{head} of MiniLM: scores and weights")
    left, step = 66, 676 / len(tokens)
    for y, height, values, top, title in (
        (40, 90, scores - scores.min(), float(-scores.min()), "scores, above the smallest"),
        (178, 90, row, float(row.max()), "weights"),
    ):
        figure.text(left, y - 10, title, bold=True)
        for value in (0, top):
            place = y + height * (1 - value / top)
            figure.line([(left, place), (left + 676, place)], colour="line")
            figure.text(left - 6, place + 4, number(value), size=10, anchor="end", colour="muted")
        for key, value in enumerate(values):
            figure.box(left + key * step + 6, y + height * (1 - value / top), step - 12, height * value / top)
    for key, token in enumerate(tokens):
        figure.text(left + (key + 0.5) * step + 4, 276, token, size=11, anchor="end", turn=-90)
    figure.text(left, 350, f"query “{word}” of head {layer}.{head}", size=11, colour="muted")
    return figure


def draw_hopfield() -> Figure:
    """One head with less and more memory."""
    layer, head = 3, 11
    maps = [("as trained", "alpha 0", samples.middle().maps["weights"][layer, head])]
    for alpha in (0.5, 0.7):
        a = samples.analysed(samples.MIDDLE, mechanism={"name": "hopfield", "alpha": alpha})
        maps.append(("hopfield", f"alpha {alpha}", a.maps["weights"][layer, head]))
    foot = f"head {layer}.{head}, weights; the more memory, the more of the layers before"
    return panels(f"Head {layer}.{head} of {MODEL} as it is and with a memory", samples.middle(), maps, foot)


def draw_jump() -> Figure:
    """One head before and after, and the graph between."""
    layer, head = 1, 8
    a = samples.analysed(samples.SHORT, ("weights", "jump-map"))
    b = samples.analysed(samples.SHORT, mechanism="jump")
    maps = (("as trained", "weights", a.maps["weights"][layer, head]),
            ("tie graph", "what jumps go along", a.maps["jump-map"][layer, head]),
            ("jump", "weights", b.maps["weights"][layer, head]))  # fmt: skip
    title = f"Head {layer}.{head} of {MODEL} before and after its scores jump, and the graph they jump along"
    return panels(title, a, maps, f"head {layer}.{head}")


def draw_jump_map() -> Figure:
    """One head and its tie graph at two thresholds."""
    layer, head = 2, 4
    a = samples.analysed(samples.SHORT, ("weights", "jump-map"))
    b = samples.analysed(samples.SHORT, ({"name": "jump-map", "rho": 2.0},))
    maps = (("weights", "what the head attends to", a.maps["weights"][layer, head]),
            ("jump map", "rho 5: few tokens tied", a.maps["jump-map"][layer, head]),
            ("jump map", "rho 2: more of them", b.maps["jump-map"][layer, head]))  # fmt: skip
    return panels(f"Head {layer}.{head} of {MODEL} and the graph of its scores", a, maps, f"head {layer}.{head}")


def draw_pasta() -> Figure:
    """The attention of every head to [CLS], before and after [CLS] is made similar to [SEP]."""
    layer, a = 2, samples.middle()
    states = samples.states(samples.MIDDLE)[layer]
    vectors = [[(states[-1] - states[0]).tolist(), [0.0] * states.shape[1]]]
    b = samples.analysed(samples.MIDDLE, mechanism={"name": "pasta", "layers": [layer], "vectors": vectors})
    received = [one.maps["weights"][:, :, 1:-1, 0].mean(-1) for one in (a, b)]  # [L, H]
    figure = Figure(760, 236, f"Attention to [CLS] in {MODEL} before and after a vector is added to it")
    panes = (
        ("as trained", received[0]),
        ("with the vector", received[1]),
        ("the difference", received[1] - received[0]),
    )
    for place, (title, values) in enumerate(panes):
        x = 30 + place * 246
        figure.text(x, 14, title, bold=True)
        grid(figure, x, 38, values, 1.0, 18)
        figure.line([(x - 22, 38 + 18 * layer), (x + 12 * 18, 38 + 18 * layer)], colour="accent", width=1.5)
    words = "layers down, heads across; mean weight that words put on [CLS]"
    figure.text(30, 168, words, size=11, colour="muted")
    added = f"the state of [SEP] minus that of [CLS] is added to [CLS] at the red line, before layer {layer}"
    figure.text(30, 184, added, size=11, colour="muted")
    figure.legend(30, 202, 1.0, signed=True)
    return figure


def draw_ablate() -> Figure:
    """The effect of a uniform head on all other heads, and one of those before and after."""
    off = "0.2"
    a, b = samples.middle(), samples.analysed(samples.MIDDLE, mechanism={"name": "ablate", "heads": [off]})
    change = np.array(headscope.compare(a, b)["js_divergence"])  # [L, H], bits
    others = change[1:]
    place = np.unravel_index(int(others.argmax()), others.shape)
    layer, head, largest = int(place[0]) + 1, int(place[1]), float(others.max())
    figure = Figure(760, 280, f"What changes in {MODEL} when head {off} attends to everything alike")
    figure.text(30, 14, f"change of every head without {off}", bold=True)
    grid(figure, 30, 38, np.minimum(change, largest), largest, 22)
    figure.text(30, 188, "Jensen-Shannon divergence in bits", size=11, colour="muted")
    figure.text(30, 204, "layers down, heads across", size=11, colour="muted")
    figure.text(30, 220, f"the scale ends at {largest:.2f}; {off} itself: {change[0, 2]:.2f}", size=11, colour="muted")
    figure.legend(30, 240, largest, signed=False)
    tokens, maps = [token.text for token in a.tokens], [one.maps["weights"][layer, head] for one in (a, b)]
    for x, words, values in zip((370, 570), ("as trained", f"{off} spread evenly"), maps, strict=True):
        figure.text(x, 14, f"head {layer}.{head}", bold=True)
        figure.text(x, 30, words, size=11, colour="muted")
        figure.image(x, 38, 180, 180, coloured(values, float(maps[0].max())))
        ticks(figure, tokens, x, 38, 180 / len(tokens), left=x == 370)
    return figure


PICTURES: dict[str, Callable[[], Figure]] = {
    "softmax": draw_softmax,
    "hopfield": draw_hopfield,
    "jump": draw_jump,
    "jump-map": draw_jump_map,
    "pasta": draw_pasta,
    "ablate": draw_ablate,
}
