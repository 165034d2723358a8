"""From a sentence to a view: what is done with the measures, classes and lenses that it names."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace

from ...errors import ModelUnavailable
from ...lenses import LENSES
from ...measures import MEASURES
from ..terms import CLASSES, columns_of, is_per_head, kinds
from . import slots
from .sentence import Alternative, AmbiguousSentence, RequestedView, Sentence, Slot, ViewPart
from .topics import NEGATION, Topic, TopicReader, clause_of
from .vocabulary import COMMAND, Encoder, Meaning, certain, content, make_vocabulary, spoken, stem, stems

EXAMPLES = ("vertical heads", "previous token heads", "the 5 heads with the lowest entropy", "entropy by layer")
BEST = 5
HEADS = r"(?: all)?(?: the)?(?: heads?| grid| them| map| it)?"


def interpret(sentence: Sentence, encoder: Encoder | None) -> RequestedView:
    """Return the view that a sentence requests. Raises AmbiguousSentence with the question to ask."""
    return _Reading(sentence, encoder).view()


class _Reading:
    """One sentence. `role` is what its measure is for: it finds heads, sorts them all (`order`), counts them, or fills the slot of that name."""

    def __init__(self, s: Sentence, encoder: Encoder | None) -> None:
        self.s, self.encoder = s, encoder
        self.vocabulary = make_vocabulary()
        self.reader = TopicReader(s, self.vocabulary, encoder)
        self.role, self.by, self.versus = "find", "", ""

    def view(self) -> RequestedView:
        s = self.s
        if command := self._command():
            titles = "; ".join(measure.title for measure in MEASURES.values() if is_per_head(measure))
            notes = [f"Measures of heads: {titles}."] if command.value == "measures" else []
            return RequestedView("", [], [ViewPart(command.slot, command.value, s.said)], notes)
        if re.search(r"\b(?:which|what) layers?\b", s.lower):
            raise AmbiguousSentence(
                "Heads are found here, not layers. Draw a measure by layer instead.",
                ["entropy by layer", "null share by layer"],
            )
        slots.read_words(s)
        self._read_role()
        slots.read_bounds(s)
        slots.read_thresholds(s)
        alike = [Topic(Meaning("number", f"like.{head}"), *found.span()) for head, found in slots.read_heads(s)]
        slots.read_ranges(s)
        slots.read_limit(s)
        compared = r"(?:the )?difference(?: (?:between|of))?|compar(?:e|es|ed|ing|ison)(?: of| it| this)?(?: (?:with|to|between))?"
        versus = s.take(rf"{compared}|vs\.?|versus|against|minus|side by side")
        self.versus = versus[0] if versus else ""
        self._apply([*alike, *self.reader.read()])
        if not s.parts:
            raise AmbiguousSentence(
                "Which heads? Describe what they attend to, what they are like, or which layers they are in.", EXAMPLES
            )
        return s.to_view()

    def _command(self) -> Meaning | None:
        """Return the command of the page that the whole sentence is."""
        said = re.sub(r"[?!.]+$|\bplease\b|\bcan you\b", "", self.s.lower).strip()
        said = re.sub(r"^(?:don't|do not|never) (?:show|display|draw)\b", "hide", said)
        known = {phrase: meaning for phrase, meaning in self.vocabulary.phrases if meaning.kind == "command"}
        if said in known or self.encoder is None or re.search(rf"\d|[<>=@#]|\bheads?\b|{NEGATION.pattern}", said):
            return known.get(said)
        if self.vocabulary.cover([stem(word[0]) for word in content(said)]) is None:
            with suppress(ModelUnavailable):
                near = self.vocabulary.nearest(said, self.encoder, commands=True)
                return near[0][2] if near[0][0] >= COMMAND and certain(near) else None
        return None

    def _read_role(self) -> None:
        s = self.s
        finds = r"\b(?:heads? (?:with|that|has|have)|(?:high|low)est|most|least|layer|look|attend)"
        explain = r"^ ?(?:what(?:'s| is| are| does| do)|explain|define|describe|tell me about|tell me what|meaning of)(?: the| a| an)?"
        if not re.search(finds, s.rest) and s.take(explain):
            s.take(r"(?:means?|stand for|is|measures?|tells?(?: us| me)?) ?[?.]?$")
            self.role = "explain"
        if s.take(r"(?:how many|number of|count)(?: of)?(?: the)?"):
            self.role = "count"
        if s.take(rf"(?:colou?r|paint|shade|tint)(?:ed|ing)?{HEADS} (?:by|with|according to|using)(?: how)?"):
            self.role = "measure"
        if s.take(rf"(?:sort|order|rank)(?:ed|ing)?{HEADS} by") or s.take(r"^ ?(?:sort|order)"):
            self.role = "order"
        drawn = s.take(r"(?:plot|draw|chart|graph)(?: of| the)*")
        by = r"(?:by|per|across|over|for each|for every|in each) (?:the |all )?(?P<by>layer|head)s?"
        if self.role != "order" and (found := s.take(by)):
            self.by = found["by"]
        if self.by or drawn:
            self.role = "chart"
        s.lowest = s.take(r"(?:smallest|lowest|least) (?:one |value |values |ones )?first") is not None
        s.take(r"(?:largest|highest|biggest|most) (?:one |value |values |ones )?first")
        s.take(r"back(?= (?:at|to|on)\b)")
        s.take(r"(?:focus(?:s?ed|es)?|concentrat(?:ed?|es)) (?:on|at|upon)")

    def _apply(self, topics: list[Topic]) -> None:
        """Turn the topics into parts of the view."""
        for found, pattern in self.s.thresholds:
            self._attach(found, pattern, topics)
        if self.role == "explain" and not (self.reader.superlative or self.s.thresholds):
            for topic in topics:
                self._explain(topic)
            return
        for topic in topics:
            if topic.meaning.kind == "several":
                name = topic.meaning.value
                columns = [Meaning("number", f"{name}.{column}") for column in columns_of(name)][:6]
                raise self.reader.ask("This measure has several numbers. Which one?", topic.start, topic.end, columns)
        self._conditions([topic for topic in topics if topic.threshold or topic.meaning.kind == "condition"])
        self._lenses([topic for topic in topics if topic.meaning.kind == "lens"])
        numbers = [topic for topic in topics if topic.meaning.kind == "number" and not topic.threshold]
        if self.role in ("measure", "chart"):
            self._draw(numbers)
        elif self.role == "count":
            self._count(numbers)
        else:
            self._rank(numbers)

    def _explain(self, topic: Topic) -> None:
        """Answer with the declaration of a measure, a class or a lens."""
        name = topic.meaning.value.split(" ")[0]
        self._part("explain", name, topic)
        measure = CLASSES if name in kinds() else re.split(r"[.@]", name)[0]
        if topic.meaning.kind != "lens" and measure not in MEASURES:
            raise AmbiguousSentence(
                "Explain what? Name a measure, a class of heads or a lens.",
                ["what does entropy mean?", "what is a vertical head?"],
            )
        folder, declared = ("lenses", LENSES[name]) if topic.meaning.kind == "lens" else ("measures", MEASURES[measure])
        self.s.note(f"{declared.title}: {declared.doc}")
        self.s.note(declared.not_)
        self.s.note(f"Source: {declared.citation}. More in docs/explanation/{folder}/{declared.name}.md.")

    def _attach(self, found: re.Match[str], pattern: str, topics: list[Topic]) -> None:
        """Give a threshold to the measure of its clause, the nearest before it, else after it."""
        free = [topic for topic in topics if topic.meaning.kind == "number" and not topic.threshold]
        here = [topic for topic in free if topic.clause == clause_of(self.s, found.start())] or free
        before = [topic for topic in here if topic.end <= found.start()]
        topic = next(iter([*before[-1:], *here]), None)
        if topic is None:
            raise AmbiguousSentence(
                f"“{self.s.said[slice(*found.span())]}” of what? Name a measure, as in entropy below 1."
            )
        self._check_unit(topic.meaning.value, found)
        topic.threshold = pattern
        topic.start, topic.end = min(topic.start, found.start()), max(topic.end, found.end())

    def _check_unit(self, name: str, found: re.Match[str]) -> None:
        """Ask if the threshold has a unit that the measure has not: 40 % of an entropy, or 2 nats of a share."""
        measure, _, column = name.partition("@")[0].partition(".")
        said, unit = found[0], MEASURES[measure].unit_of(column or None) if measure in MEASURES else ""
        given = next((word for word in ("%", "percent", "per cent", "nat", "bit", "token") if word in said), "")
        share = given in ("%", "percent", "per cent")
        if given and (share != (unit == "1") if share or unit == "1" else not unit.startswith(given)):
            raise AmbiguousSentence(
                f"{spoken(name)} is {'a number without a unit' if unit == '1' else f'in {unit}'}. Which threshold do you mean?"
            )

    def _conditions(self, topics: list[Topic]) -> None:
        """Join conditions by `or` where the sentence does; `neither a nor b` are two, both negated."""
        groups: list[list[Topic]] = []
        for topic in topics:
            if groups and topic.joined == "or" and topic.negated == groups[-1][0].negated:
                groups[-1].append(topic)
            else:
                groups.append([topic])
        classes = [group[0].meaning.value for group in groups if not group[0].negated]
        named = [name for name in dict.fromkeys(classes) if name in kinds()]
        if len(named) > 1:
            either, both = f"{named[0]} or {named[1]} heads", f"{named[0]}+{named[1]}"
            at_once = [Alternative(f"both at once: the class {both}", f"{both} heads")] if both in kinds() else []
            raise AmbiguousSentence(
                f"A head has one class. {'The class that is both at once, or heads' if at_once else 'Heads'} of either class?",
                [*at_once, Alternative("either of them", either)],
            )
        for group in groups:
            text = " or ".join(topic.condition for topic in group)
            negation = f"not ({text})" if len(group) > 1 else f"not {text}"
            self._part("where", negation if group[0].negated else text, replace(group[0], end=group[-1].end))

    def _lenses(self, topics: list[Topic]) -> None:
        names = [topic.meaning.value for topic in topics]
        if self.versus and not topics:
            raise AmbiguousSentence(
                "Compare what? Name two lenses or two heads; choose a second text or model at the top.",
                ["compare weights and effective", "compare weights and norm", "compare head 3.1 and 4.5"],
            )
        if len(topics) == 1:
            self._part("compare" if self.versus else "lens", names[0], topics[0])
        elif topics and not self.versus:
            only = [Alternative(f"only {name}", f"{name} lens") for name in names[:2]]
            raise AmbiguousSentence(
                "These are two lenses. Compare them?", [f"compare {names[0]} and {names[1]}", *only]
            )
        elif topics:
            self._part("lens", names[0], topics[0])
            self._part("difference" if re.match("the|diff|minus", self.versus) else "compare", names[1], topics[1])

    def _draw(self, topics: list[Topic]) -> None:
        """Colour heads by a measure, or draw it by layer or head."""
        for topic in topics:
            name = topic.meaning.value
            if self.role == "chart" and not self.by:
                raise AmbiguousSentence("By layer, or by head?", [f"{name} by layer", f"{name} by head"])
            if self.role == "chart":
                self._part("chart", f"{name} {self.by}", topic)
            else:
                self._part("measure", name, topic)

    def _count(self, topics: list[Topic]) -> None:
        if topics:
            name = topics[0].meaning.value
            raise AmbiguousSentence(
                "How high? Give a threshold, or rank all heads.",
                [f"how many heads have {name} > 0.5", Alternative("rank all heads", f"heads sorted by {name}")],
            )
        self._part("count", "heads")

    def _rank(self, topics: list[Topic]) -> None:
        """Order by the measure for which no threshold was given; the best few are found, unless all are to be sorted."""
        s = self.s
        tagged = any(token.pos for token in s.context.key_tokens)
        if (
            not tagged
            and self.role != "order"
            and any(re.fullmatch(r"token_types\.[A-Z]+", t.meaning.value) for t in topics)
        ):
            raise AmbiguousSentence(
                "The parts of speech of this text are not known: they are part of a request. What else would you like to find?",
                ["heads that attend to punctuation", "heads that attend to pieces of words"],
            )
        if len({(topic.meaning, topic.negated) for topic in topics}) > 1:
            asks = [
                f"heads with the {'lowest' if topic.ascending else 'highest'} {topic.meaning.value}" for topic in topics
            ]
            raise AmbiguousSentence("Heads can be ranked by only one measure at a time. Which one?", asks)
        opened = next((part.value for part in s.parts if part.slot == "head" and part.value != "best"), None)
        if opened and topics:
            ranking = f"heads with the {'lowest' if topics[0].ascending else 'highest'} {topics[0].meaning.value}"
            raise AmbiguousSentence("Open the head, or rank all heads?", [f"head {opened}", ranking])
        plain = (
            self.role == "find"
            and not s.parts
            and not self.reader.superlative
            and not re.search(r"\bheads?\b", s.lower)
        )
        for topic in topics[:1]:
            if plain and not topic.negated and self._is_name(topic):
                self._part("measure", topic.meaning.value, topic)
                return
            small = topic.ascending ^ s.lowest or (self.role == "order" and re.search(r"\basc(?:ending)?\b", s.lower))
            self._part("order", f"order by {topic.meaning.value} {'asc' if small else 'desc'}", topic)
        filtered = any(part.slot == "where" and not re.search(r"\b(?:layer|head)\b", part.value) for part in s.parts)
        if not s.limit and ((topics and self.role != "order") or (filtered and self.reader.superlative)):
            single = s.has("head") or (self.reader.superlative and re.search(r"\bhead\b", s.lower))
            self._part("limit", "1" if single else str(BEST))

    def _is_name(self, topic: Topic) -> bool:
        """Return whether a measure is named, and not described."""
        name = topic.meaning.value
        names = (name, spoken(name), MEASURES[name].title.lower() if name in MEASURES else name)
        return stems(self.s.lower[topic.start : topic.end]) in map(stems, names)

    def _part(self, slot: Slot, value: str, topic: Topic | None = None) -> None:
        start, end = (topic.start, topic.end) if topic else (0, len(self.s.said))
        self.s.matched.append((start if topic else end, ViewPart(slot, value, self.s.said[start:end].strip(" ,"))))
