"""The figures of the gallery, with the code that the page shows and that `docs/pictures.py figures` runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headscope.figures import FIGURES
from headscope.figures.studies import STUDY_FIGURES


@dataclass(frozen=True, kw_only=True)
class Part:
    """Figures of one result: the code that computes it, its name there, and the names of the figures."""

    heading: str
    about: str
    code: str
    result: str
    figures: tuple[str, ...]

    @property
    def is_of_study(self) -> bool:
        """Whether the figures are those of a study; some of an analysis have the same names."""
        return f"{self.result} = headscope.study(" in self.code

    def picture(self, name: str) -> str:
        """Return the file name of the picture of a figure."""
        return f"study-figure-{name}.png" if self.is_of_study else f"figure-{name}.png"


TEXT = "The figures of an analysis are drawn from its measures."
TAGS = "Words may have parts of speech and other labels, [which you give](how-to/tags.md)."
TEXTS = """A [study](how-to/study.md) keeps numbers of every head over all texts; bands and bars have 95 % intervals.
Three texts are few: the intervals are wide."""
MODELS = "A study of two models compares their heads text by text. These two [twins](explanation/twins.md) differ in how they attend."
ENTITIES = "Attention from [CLS], and strong connections, by the parts of speech and the entities that they join."
EFFECTS = (
    "The [direct contribution](explanation/effects/contribution.md) of every head to the right verb over the wrong one."
)
LABELS = """[Labels](explanation/figures/studies/scores.md#labels) mark a pronoun and the name that it refers to.
Each lens is scored by how often its largest entry is on that name."""
PARTS = (
    Part(
        heading="One text",
        about=TEXT,
        code="""import headscope

text = (
    "The old clock on the town hall stopped at noon, and nobody noticed at first: "
    "the baker opened his shop when the bread was done, "
    "and the children came to school when they were hungry for company."
)
measures = (
    *("entropy", "token_similarity", "residual_ratio"),
    *("rank", "patterns", "qk_spectrum_layer"),
)
a = headscope.analyze("minilm", text, measures=measures)""",
        result="a",
        figures=("entropy", "token_similarity", "residual_ratio", "rank", "patterns", "spectrum"),
    ),
    Part(
        heading="Words with parts of speech",
        about=TAGS,
        code="""words = "Ann met Bob in Oslo on Monday , and they told the Danish press that Shell would pay ."
pos = "PROPN VERB PROPN ADP PROPN ADP PROPN PUNCT CCONJ".split()
pos += "PRON VERB DET ADJ NOUN SCONJ PROPN AUX VERB PUNCT".split()
types = ("token_types",)
tagged = headscope.analyze("minilm", words, lenses=("weights",), measures=types, pos=pos)""",
        result="tagged",
        figures=("token_types",),
    ),
    Part(
        heading="Several texts",
        about=TEXTS,
        code="""texts = [
    text,
    "The mayor held his speeches whenever he saw a crowd, "
    "and the train left once everybody who wanted to leave had come.",
    "The trophy did not fit into the suitcase because it was too big, "
    "so they put it on a shelf above the kitchen door.",
]
figures = (
    *("pattern-shares", "pattern-grid", "lens-pair", "entropy"),
    *("head-entropy", "special-maps", "head-metrics", "residual-ratio"),
    *("token-similarity", "norms", "mixing-ratio", "lens-cost"),
)
s = headscope.study("minilm", texts, figures=figures)""",
        result="s",
        figures=(
            *("pattern-shares", "pattern-grid", "lens-pair", "entropy", "head-entropy", "special-maps"),
            *("head-metrics", "residual-ratio", "token-similarity", "norms", "mixing-ratio", "lens-cost"),
        ),
    ),
    Part(
        heading="Two models",
        about=MODELS,
        code="""before, after = "twin-bert-softmax", "twin-bert-hopfield"
two = headscope.study(before, texts, against=after, figures=("tuning",))""",
        result="two",
        figures=("tuning",),
    ),
    Part(
        heading="Words with entities",
        about=ENTITIES,
        code="""rows = [
    {
        "text": "Ann met Bob in Oslo on Monday .",
        "pos": "PROPN VERB PROPN ADP PROPN ADP PROPN PUNCT".split(),
        "labels": "B-PER O B-PER O B-LOC O O O".split(),
    },
    {
        "text": "They told the Danish press that Shell would pay .",
        "pos": "PRON VERB DET ADJ NOUN SCONJ PROPN AUX VERB PUNCT".split(),
        "labels": "O O O B-MISC O O B-ORG O O O".split(),
    },
]
entities = headscope.study("minilm", rows, figures=("token-types", "connections"))""",
        result="entities",
        figures=("token-types", "connections"),
    ),
    Part(
        heading="What heads do to a prediction",
        about=EFFECTS,
        code="""verbs = [
    {"text": "The keys to the old cabinet", "target": " are", "minus": " is"},
    {"text": "The key to the cabinets", "target": " is", "minus": " are"},
    {"text": "The boys who saw the girl", "target": " are", "minus": " is"},
]
effects = headscope.study("twin-gpt-softmax", verbs, effects=("contribution",))""",
        result="effects",
        figures=("effects",),
    ),
    Part(
        heading="Where heads should look",
        about=LABELS,
        code="""names = "Ann Mary Sarah Emma Lucy Jane Kate Rose Alice Grace Helen Laura".split()
lost, slept = "key O query O".split(), "O key O query O O".split()
pronouns = [
    *({"text": f"{name} lost her keys", "labels": lost} for name in names),
    *({"text": f"Later {name} and her dog slept", "labels": slept} for name in names),
]
lenses = ("weights", "norm")
scores = headscope.study("minilm", pronouns, lenses=lenses, figures=("scores",))""",
        result="scores",
        figures=("scores",),
    ),
)


def page() -> str:
    """Return all parts of the page: a heading, the code of the result, and for each figure what it shows, its line of code and its picture."""
    return "\n\n".join(block for part in PARTS for block in _blocks(part))


def _blocks(part: Part) -> list[str]:
    known: dict[str, Any] = STUDY_FIGURES if part.is_of_study else FIGURES
    folder = "explanation/figures/studies" if part.is_of_study else "explanation/figures"
    blocks = [f"### {part.heading}", part.about, f"```python\n{part.code}\n```"]
    for name in part.figures:
        figure = known[name]
        about = figure.doc.partition(". ")[0].removesuffix(".")
        blocks += [
            f"#### {figure.title}",
            f"{about}.\n[How it is drawn]({folder}/{name}.md).",
            f'```python\n{part.result}.figure("{name}")\n```',
            f"![{figure.title}, drawn by the line above](pictures/{part.picture(name)})",
        ]
    return blocks
