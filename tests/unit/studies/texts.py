"""Texts of our own for studies: as many as wanted, of very different lengths, the same ones every time."""

from __future__ import annotations

import random

from headscope.studies.data.dataset import Row

WORDS = """the a an old young small green quiet heavy clever river garden teacher letter engine winter
bridge market sailor window forest kitchen mountain captain sleeps writes carries remembers forgets opens crosses follows
answers under behind before after without between slowly often never because although and but or when
unbelievably photosynthesis Thursday Lisbon Amina Grünwald 1984 don't""".split()
ENDS = (".", "!", "?", ";", "")


def texts(count: int, seed: int = 0, longest: int = 40) -> list[str]:
    """Sentences of 1 to `longest` words; some are there twice."""
    draw = random.Random(seed)
    found = [
        " ".join(draw.choices(WORDS, k=draw.randint(1, longest))).capitalize() + draw.choice(ENDS) for _ in range(count)
    ]
    return [draw.choice(found) if draw.random() < 0.05 else text for text in found]


def rows(count: int, seed: int = 0, longest: int = 40) -> list[Row]:
    """The same as rows of a data set."""
    return [Row(number, text) for number, text in enumerate(texts(count, seed, longest), start=1)]
