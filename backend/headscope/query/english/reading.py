"""From a sentence to a view: what is done with the measures, classes and lenses that it names."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Literal

from ...errors import ModelUnavailable
from ...lenses import LENSES
from ...measures import MEASURES
from ..terms import CLASSES, LIKE, columns_of, is_per_head, kinds
from . import slots
from .sentence import Alternative, AmbiguousSentence, RequestedView, Sentence
from .topics import TARGETS, Topic, TopicReader, clause_of
from .vocabulary import Encoder, Meaning, content, make_vocabulary, spoken, stem
from .words import canonical

WHICH = "Which heads? Describe what they attend to, what they are like, or which layers they are in."
SPEECH = "The parts of speech of this text are not known: they are part of a request. What else would you like to find?"
EXAMPLES = ("vertical heads", "previous token heads", "the 5 heads with the lowest entropy", "entropy by layer")
BEST = 5
Role = Literal["find", "explain", "count", "measure", "order", "chart"]
HEADS = r"(?: all)?(?: the)?(?: heads?| grid| them| map| it)?"
# What a measure is for, by the words that say so; without them it finds heads.
ROLES: dict[Role, str] = {
    "count": r"how many(?: of)?(?: the)?|^ ?(?:the )?(?:number of|count)(?: the)?",
    "measure": rf"colour{HEADS} (?:by|with|according to|using)(?: how)?",
    "order": rf"(?:sort|order|rank|arrang)(?:ed|e|ing)?{HEADS} by|^ ?(?:sort|order)",
    "chart": r"plot(?: of| the)*",
}


class SentenceReader:
    """One sentence. `role` is what its measure is for: it finds heads, sorts them all (`order`), counts them, or fills the slot of that name."""

    def __init__(self, s: Sentence, encoder: Encoder | None) -> None:
        self.s, self.encoder = s, encoder
        self.vocabulary = make_vocabulary()
        self.reader = TopicReader(s, self.vocabulary, encoder)
        self.role: Role = "find"
        self.by, self.versus = "", ""
        self.lowest = False

    def view(self) -> RequestedView:
        """Return the view that the sentence requests. Raises AmbiguousSentence with the question to ask."""
        s = self.s
        if command := self._command():
            titles = "; ".join(measure.title for measure in MEASURES.values() if is_per_head(measure))
            s.add(command.slot, command.value, (0, len(s.text)))
            s.notes += [f"Measures of heads: {titles}."] if command.value == "measures" else []
            return s.to_view()
        if re.search(r"\b(?:which|what) layers?\b", s.text):
            by_layer = ["entropy by layer", "null share by layer"]
            raise AmbiguousSentence("Heads are found here, not layers. Draw a measure by layer instead.", by_layer)
        slots.read_words(s)
        slots.refuse_parts(s)
        self._read_role()
        slots.read_places(s)
        thresholds = slots.read_thresholds(s)
        alike = [Topic(Meaning("number", f"{LIKE}.{head}"), span, unlike) for head, unlike, span in slots.read_heads(s)]
        self.lowest |= slots.read_limit(s)
        compared = r"(?:the )?difference(?: (?:between|of))?|compare(?: of| it| this)?(?: (?:with|to|between))?|vs"
        versus = s.take(compared)
        self.versus = versus[0] if versus else ""
        self._apply([*alike, *self.reader.read()], thresholds)
        if not s.parts:
            raise AmbiguousSentence(WHICH, EXAMPLES)
        return s.to_view()

    def _command(self) -> Meaning | None:
        """Return the command of the page that the whole sentence is."""
        said = self.s.text.strip(" ?!.")
        known = {canonical(one)[0]: what for one, what in self.vocabulary.phrases if what.kind == "command"}
        if said in known or self.encoder is None or re.search(r"\d|[<>=@#]|\b(?:heads?|not)\b", self.s.text):
            return known.get(said)
        if self.vocabulary.cover([stem(word[0]) for word in content(self.s.text)]) is None:
            with suppress(ModelUnavailable):
                near, sure = self.vocabulary.nearest(said, self.encoder, commands=True)
                return near[0][1] if sure else None
        return None

    def _read_role(self) -> None:
        s = self.s
        finds = r"\b(?:heads? (?:with|that|has|have)|most|least|layer|look)\b"
        explain = r"^ ?(?:what(?:'s| is| are| does| do)|explain|define|describe|tell me about|tell me what|meaning of)(?: the| a| an)?"
        if not re.search(finds, s.rest) and s.take(explain):
            s.take(r"(?:means?|stand for|is|measures?|tells?(?: us| me)?)(?= ?[?.]? ?$)")
            self.role = "explain"
        for role, pattern in ROLES.items():
            if s.take(pattern):
                self.role = role
        by = r"(?:chang\w+ |evolv\w+ |var(?:y|ies) )?(?:(?:by|per|across|over|vs(?= layer)|for each|for every|in each) (?:the |all )?(?P<by>layer|head)s?|with depth)"
        if self.role != "order" and (found := s.take(by)):
            self.role, self.by = "chart", found["by"] or "layer"
        self.lowest = s.take("asc") is not None
        s.take("desc")

    def _apply(self, topics: list[Topic], thresholds: list[slots.Threshold]) -> None:
        """Turn the topics into parts of the view."""
        for threshold in thresholds:
            self._attach(threshold, topics)
        if self.role == "explain" and not (self.reader.superlative or thresholds):
            for topic in topics:
                self._explain(topic)
            return
        for topic in topics:
            if topic.meaning.kind == "several":
                name = topic.meaning.value
                columns = {f"{name}.{column}": f"{name}.{column}" for column in columns_of(name)[:6]}
                raise self.s.ask("This measure has several numbers. Which one?", topic.span, columns)
            self._refuse_only(topic)
        self._conditions([topic for topic in topics if topic.threshold or topic.meaning.kind == "condition"])
        self._lenses([topic for topic in topics if topic.meaning.kind == "lens"])
        numbers = [topic for topic in topics if topic.meaning.kind == "number" and not topic.threshold]
        names = [topic.meaning.value for topic in numbers]
        if self.role == "chart" and (self.reader.superlative or any(part.slot == "limit" for part in self.s.parts)):
            raise AmbiguousSentence("Heads are ranked among all layers, or a measure is drawn by layer.", EXAMPLES[2:])
        if self.role == "chart" and names and not self.by:
            raise AmbiguousSentence("By layer, or by head?", [f"{names[0]} by layer", f"{names[0]} by head"])
        if self.role == "count" and names:
            rank = Alternative("rank all heads", f"heads sorted by {names[0]}")
            asks: list[Alternative | str] = [f"how many heads have {names[0]} > 0.5", rank]
            raise AmbiguousSentence("How high? Give a threshold, or rank all heads.", asks)
        if self.role == "count":
            self.s.add("count", "heads")
        elif self.role == "measure" or self.role == "chart":
            for topic in numbers:
                self.s.add(self.role, f"{topic.meaning.value} {self.by}".strip(), topic.span)
        else:
            self._rank(numbers)

    def _explain(self, topic: Topic) -> None:
        """Answer with the declaration of a measure, a class or a lens."""
        name = topic.meaning.value.split(" ")[0]
        measure = CLASSES if name in kinds() else re.split(r"[.@]", name)[0]
        lens = topic.meaning.kind == "lens"
        folder, declared = ("lenses", LENSES.get(name)) if lens else ("measures", MEASURES.get(measure))
        if declared is None:  # how alike heads are
            return
        self.s.add("explain", name, topic.span)
        self.s.note(f"{declared.title}: {declared.doc}")
        self.s.note(declared.not_)
        self.s.note(f"Source: {declared.citation}. More in docs/explanation/{folder}/{declared.name}.md.")

    def _attach(self, threshold: slots.Threshold, topics: list[Topic]) -> None:
        """Give a threshold to the measure of its clause, the nearest before it, else after it. Asks if its unit is not that of the measure."""
        clause = clause_of(self.s, threshold.span[0])
        free = [topic for topic in topics if topic.meaning.kind == "number" and not topic.threshold]
        here = [topic for topic in free if clause_of(self.s, topic.span[0]) == clause] or free
        before = [topic for topic in here if topic.span < threshold.span]
        topic = next(iter([*before[-1:], *here]), None)
        if topic is None:
            raise AmbiguousSentence(f"“{self.s.words(threshold.span)}” of what? Name a measure, as in entropy below 1.")
        name, _, column = topic.meaning.value.partition("@")[0].partition(".")
        unit = MEASURES[name].unit_of(column or None) if name in MEASURES else "1"
        given = threshold.unit.rstrip("s")
        if given and not (unit == "1" if given in ("%", "percent", "per cent") else unit.startswith(given)):
            kind = "a number without a unit" if unit == "1" else f"in {unit}"
            raise AmbiguousSentence(f"{spoken(topic.meaning.value)} is {kind}. Which threshold do you mean?")
        topic.threshold = threshold.pattern
        topic.span = min(topic.span[0], threshold.span[0]), max(topic.span[1], threshold.span[1])

    def _refuse_only(self, topic: Topic) -> None:
        """Ask how much `only [SEP]` is, as nearly every head gives other tokens a little."""
        name = topic.meaning.value
        if topic.threshold or not name.startswith(TARGETS):
            return
        for only in re.finditer(r"\bonly\b(?! (?:in|for|of) (?:the )?(?:\w+ ){0,2}(?:layers?|half)\b)", self.s.text):
            if clause_of(self.s, only.start()) != clause_of(self.s, topic.span[0]):
                continue
            span = min(only.start(), topic.span[0]), max(only.end(), topic.span[1])
            shares = {f"at least {share} %": f"{name} >= {share}%" for share in (90, 50)}
            raise self.s.ask(
                "What share counts as “only”? Choose one, or rank the heads.",
                span,
                {**shares, "rank the heads": f"most {name}"},
            )

    def _conditions(self, topics: list[Topic]) -> None:
        """Join conditions by `or` where the sentence does; `neither a nor b` are two, both negated."""
        if named := [topic.meaning.value for topic in topics if topic.meaning.smallest and not topic.threshold]:
            asks = [f"{named[0]} heads", f"heads that are not {named[0]}"]
            raise AmbiguousSentence("A head is in a class or not; there is no least. Which heads?", asks)
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
            what = f"{'The class that is both at once, or heads' if at_once else 'Heads'} of either class?"
            raise AmbiguousSentence(f"A head has one class. {what}", [*at_once, Alternative("either of them", either)])
        for group in groups:
            text = " or ".join(topic.condition for topic in group)
            negation = f"not ({text})" if len(group) > 1 else f"not {text}"
            self.s.add("where", negation if group[0].negated else text, (group[0].span[0], group[-1].span[1]))

    def _lenses(self, topics: list[Topic]) -> None:
        names = [topic.meaning.value for topic in topics]
        if self.versus and not topics:
            examples = ["compare weights and effective", "compare weights and norm", "compare head 3.1 and 4.5"]
            what = "Compare what? Name two lenses or two heads; choose a second text or model at the top."
            raise AmbiguousSentence(what, examples)
        if len(topics) == 1:
            self.s.add("compare" if self.versus else "lens", names[0], topics[0].span)
        elif topics and not self.versus:
            only = [Alternative(f"only {name}", f"{name} lens") for name in names[:2]]
            both = f"compare {names[0]} and {names[1]}"
            raise AmbiguousSentence("These are two lenses. Compare them?", [both, *only])
        elif topics:
            self.s.add("lens", names[0], topics[0].span)
            self.s.add("difference" if "difference" in self.versus else "compare", names[1], topics[1].span)

    def _rank(self, topics: list[Topic]) -> None:
        """Order by the measure for which no threshold was given; the best few are found, unless all are to be sorted."""
        s, superlative = self.s, self.reader.superlative
        speech = any(re.fullmatch(r"token_types\.[A-Z]+", topic.meaning.value) for topic in topics)
        if speech and self.role != "order" and not any(token.pos for token in s.context.key_tokens):
            raise AmbiguousSentence(
                SPEECH, [f"heads that attend to {one}" for one in ("punctuation", "pieces of words")]
            )
        asks = [f"heads with the {'lowest' if one.ascending else 'highest'} {one.meaning.value}" for one in topics]
        if len(set(asks)) > 1:
            raise AmbiguousSentence("Heads can be ranked by only one measure at a time. Which one?", asks)
        values = {part.slot: part.value for part in s.parts}
        best = values.get("head") == "best"
        if topics and "head" in values and not best:
            raise AmbiguousSentence("Open the head, or rank all heads?", [f"head {values['head']}", asks[0]])
        heads = re.search(r"\bhead(s?)\b", s.text)
        for topic in topics[:1]:
            whole = self.s.words(topic.span) == s.said.strip(" ?.!,")
            ranked = superlative or topic.negated or re.search(r"\b(?:most|least|max)\b", s.text)
            if whole and self.role == "find" and not (ranked or topic.meaning.value.startswith(LIKE)):
                s.add("measure", topic.meaning.value, topic.span)
                return
            direction = "asc" if topic.ascending != self.lowest else "desc"
            s.add("order", f"order by {topic.meaning.value} {direction}", topic.span)
        filtered = any(part.slot == "where" and not re.search(r"\b(?:layer|head)\b", part.value) for part in s.parts)
        if "limit" not in values and ((topics and self.role != "order") or (filtered and (superlative or best))):
            single = best or (superlative and heads and not heads[1])
            s.add("limit", "1" if single else str(BEST))
