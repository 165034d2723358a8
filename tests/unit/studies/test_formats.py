"""Every format read: rows with their numbers, pairs, labels and tags, and which column was taken for what."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headscope.core.text import find_words
from headscope.errors import InvalidRequest, Unknown
from headscope.studies.data.dataset import Dataset, Row
from headscope.studies.data.formats import FORMATS, read
from headscope.studies.data.formats.lines import LINE_BYTES

CONLLU = """# sent_id = 1
# text = She can't sit: well.
1\tShe\tshe\tPRON\tPRP\t_\t3\tnsubj\t_\t_
2-3\tcan't\t_\t_\t_\t_\t_\t_\t_\t_
2\tca\tcan\tAUX\tMD\t_\t4\taux\t_\t_
3\tn't\tnot\tPART\tRB\t_\t4\tadvmod\t_\t_
4\tsit\tsit\tVERB\tVB\t_\t0\troot\t_\tSpaceAfter=No
4.1\tdown\tdown\tADP\tRP\t_\t_\t_\t4:compound\t_
5\t:\t:\tPUNCT\t:\t_\t4\tpunct\t_\t_
6\twell\twell\tADV\tRB\t_\t4\tadvmod\t_\tSpaceAfter=No
7\t.\t.\tPUNCT\t.\t_\t4\tpunct\t_\t_

# sent_id = 2
1-2\tau\t_\t_\t_\t_\t_\t_\t_\t_
1\tà\tà\tADP\t_\t_\t3\tcase\t_\t_
2\tle\tle\tDET\t_\t_\t3\tdet\t_\t_
3\tlac\tlac\tNOUN\t_\t_\t0\troot\t_\t_
"""


def _read(tmp_path: Path, file: str, content: str, columns: Mapping[str, str] | None = None) -> Dataset:
    path = tmp_path / file
    path.write_text(content, "utf-8", newline="")
    return read(path, columns=columns)


def _rows(dataset: Dataset) -> list[Row]:
    rows = list(dataset.rows)
    assert dataset.bad == []
    assert dataset.total == len(rows)
    return rows


def test_glue_pairs(tmp_path: Path) -> None:
    """QNLI's way: a heading, tabs, quotes that mean nothing, a pair of texts, a label; numbers are those of the lines."""
    content = (
        'index\tquestion\tsentence\tlabel\n0\tWho said "no?\tHe said "no".\tentailment\n1\tWhy?\tSo.\tnot_entailment\n'
    )
    dataset = _read(tmp_path, "dev.tsv", content)
    assert dataset.chosen == {"text": "question", "text_pair": "sentence", "label": "label"}
    assert _rows(dataset) == [
        Row(2, 'Who said "no?', 'He said "no".', label="entailment"),
        Row(3, "Why?", "So.", label="not_entailment"),
    ]


def test_glue_without_a_heading(tmp_path: Path) -> None:
    """SST-2's way: no heading, the first line is a row, the label is the column of few short values."""
    dataset = _read(tmp_path, "dev.tsv", "a fine film\t1\nno fun at all\t0\nfine\t1\nbad\t0\n")
    assert dataset.columns == ("column 1", "column 2")
    assert dataset.chosen == {"text": "column 1", "label": "column 2"}
    assert dataset.guessed
    assert _rows(dataset)[0] == Row(1, "a fine film", label="1")


PAIR = {"text": "sentence1", "text_pair": "sentence2"}
# Name of the file -> its heading and two rows in the data set's own format, and what each column is for.
PUBLIC: dict[str, tuple[str, dict[str, str]]] = {
    "CoLA/train.tsv": ("gj04\t1\t\tThey slept here.\ngj04\t0\t*\tThey here slept so.\n" * 2, {"text": "column 4", "label": "column 2"}),
    "SST-2/train.tsv": ("sentence\tlabel\na fine film \t1\nno fun \t0\n", {"text": "sentence", "label": "label"}),
    "MRPC/msr_paraphrase_train.txt.tsv": (
        "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t70\t71\tShe left.\tShe went.\n0\t72\t73\tNo.\tRain fell.\n",
        {"text": "#1 String", "text_pair": "#2 String", "label": "Quality"},
    ),
    "QQP/train.tsv": (
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t3\t4\tWhy?\tWhy so?\t1\n2\t5\t6\tWho?\tWhen?\t0\n",
        {"text": "question1", "text_pair": "question2", "label": "is_duplicate"},
    ),
    "MNLI/dev_matched.tsv": (
        "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\tsentence2_parse"
        "\tsentence1\tsentence2\tlabel1\tgold_label\n" + "0\t1\t1n\tfiction\t( a )\t( b )\t(R a)\t(R b)\tIt rains.\tIt pours.\tneutral\tneutral\n" * 2,
        {**PAIR, "label": "gold_label"},
    ),
    "QNLI/dev.tsv": (
        "index\tquestion\tsentence\tlabel\n0\tWho?\tShe did.\tentailment\n1\tWhy?\tSo.\tnot_entailment\n",
        {"text": "question", "text_pair": "sentence", "label": "label"},
    ),
    "RTE/dev.tsv": (
        "index\tsentence1\tsentence2\tlabel\n0\tIt rains.\tWet.\tentailment\n1\tSo.\tNo.\tnot_entailment\n", {**PAIR, "label": "label"}
    ),
    "STS-B/dev.tsv": (
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
        + "0\tmain\tMSRvid\t2012\t1\tnone\tnone\tA man rides.\tA man walks.\t2.4\n" * 2,
        {**PAIR, "label": "score"},
    ),
    "WNLI/dev.tsv": ("index\tsentence1\tsentence2\tlabel\n0\tIt fell.\tIt broke.\t1\n1\tSo.\tNo.\t0\n", {**PAIR, "label": "label"}),
    "snli_1.0_dev.jsonl": (
        '{"annotator_labels": ["neutral"], "captionID": "4#0", "gold_label": "neutral", "pairID": "4r", "sentence1": "It rains.", "sentence2": "Wet."}\n' * 2,
        {**PAIR, "label": "gold_label"},
    ),
    "conll2000/train.txt": (
        "Confidence NN B-NP\nin IN B-PP\n\nthe DT B-NP\npound NN I-NP\n", {"words": "column 1", "pos": "column 2"}
    ),
    "conll2003/eng.testa": (
        "-DOCSTART- -X- O O\n\nPeter NNP B-NP B-PER\nslept VBD B-VP O\n", {"words": "column 1", "pos": "column 2", "labels": "column 4"}
    ),
    "conll2003/deu.testa.txt": (
        "-DOCSTART- -X- -X- -X- O\n\nPeters Peter NE I-NC I-PER\nschlief schlafen VVFIN I-VC O\n",
        {"words": "column 1", "pos": "column 3", "labels": "column 5"},
    ),
    "labels before tags.conll": ("Ann B-PER NNP\nslept O VBD\n", {"words": "column 1", "pos": "column 3", "labels": "column 2"}),
    "wnut17train.txt": ("@paul O\nOslo B-location\n\nfun O\n", {"words": "column 1", "labels": "column 2"}),
    "wikigold.txt": ("Japanese I-MISC\nBand O\n\n010 O\n", {"words": "column 1", "labels": "column 2"}),
    "en_ewt-ud-dev.txt": ("# text = Go\n1\tGo\tgo\tVERB\tVB\t_\t0\troot\t_\t_\n\n", {"text": "text", "pos": "upos"}),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLIC)
def test_public_data_sets_in_their_own_format(tmp_path: Path, name: str) -> None:
    content, chosen = PUBLIC[name]
    dataset = _read(tmp_path, Path(name).name, content)
    assert dataset.chosen == chosen
    assert _rows(dataset)


def test_text_with_tags_is_text_where_the_caller_says_so(tmp_path: Path) -> None:
    path = tmp_path / "wikigold.txt"
    path.write_text(PUBLIC[path.name][0], "utf-8")
    assert [row.text for row in read(path, format="text").rows] == ["Japanese I-MISC", "Band O", "010 O"]


def test_quoted_values(tmp_path: Path) -> None:
    """CSV: separators, quotes and line ends inside quotes; a row's number is the line on which it begins."""
    dataset = _read(tmp_path, "a.csv", 'review,stars\r\n"Fine, ""really"".",5\r\n"Two\r\nlines.",1\r\nLast.,5\r\n')
    assert dataset.chosen == {"text": "review", "label": "stars"}
    assert _rows(dataset) == [
        Row(2, 'Fine, "really".', label="5"),
        Row(3, "Two\nlines.", label="1"),
        Row(5, "Last.", label="5"),
    ]


@pytest.mark.parametrize(
    ("columns", "first", "count"),
    [
        ({"text": "alpha"}, "one of these", 2),
        ({"text": "column 1"}, "alpha", 3),
        ({"text": "beta"}, "two of these", 2),
    ],
)
def test_the_caller_decides_whether_there_is_a_heading(
    tmp_path: Path, columns: dict[str, str], first: str, count: int
) -> None:
    """A column called by its heading has one; one called by its place has none."""
    dataset = _read(tmp_path, "a.tsv", "alpha\tbeta\none of these\ttwo of these\nand\tmore\n", columns)
    rows = _rows(dataset)
    assert (rows[0].text, len(rows)) == (first, count)
    assert dataset.reasons["text"] == "chosen in the request"


def test_json_lines(tmp_path: Path) -> None:
    """Names are columns, whatever their order; labels are numbers, text, or not there."""
    lines = [
        {"id": 7, "premise": "A.", "hypothesis": "B.", "label": 1},
        {"hypothesis": "D.", "premise": "C.", "label": None},
    ]
    dataset = _read(tmp_path, "a.jsonl", "\n".join(map(json.dumps, lines)))
    assert _rows(dataset) == [Row(1, "A.", "B.", label="1"), Row(2, "C.", "D.")]


def test_json_lines_of_words(tmp_path: Path) -> None:
    """Words and their tags as lists, as token classification sets have them: a tag for every word as Headscope finds words."""
    line = {"tokens": ["U.S.", "visit"], "ner_tags": ["B-LOC", "O"], "pos_tags": ["PROPN", "NOUN"]}
    (row,) = _rows(_read(tmp_path, "a.jsonl", json.dumps(line)))
    assert row.text == "U.S. visit"
    assert row.labels == ("B-LOC",) * 4 + ("O",)
    assert row.pos == ("PROPN",) * 4 + ("NOUN",)


@pytest.mark.parametrize("pos", [["NOUN", "VERB", "PUNCT"], ["NOUN", "VERB"]])
def test_tags_beside_a_text(tmp_path: Path, pos: list[str]) -> None:
    """One tag per word as Headscope finds words, or one per word between spaces."""
    (row,) = _rows(_read(tmp_path, "a.jsonl", json.dumps({"text": "Cats sleep.", "pos": pos})))
    assert row.pos == ("NOUN", "VERB", pos[-1])


def test_parquet(tmp_path: Path) -> None:
    """Over several row groups, with columns that are no text left alone; numbers count rows."""
    path = tmp_path / "a.parquet"
    table = pa.table(
        {
            "image": [b"\0" * 10] * 1000,
            "sentence": pa.array([f"Sentence {n}." for n in range(1000)]).dictionary_encode(),
            "label": [n % 2 for n in range(1000)],
        }
    )
    pq.write_table(table, path, row_group_size=300)
    dataset = read(path)
    assert dataset.columns == ("image", "sentence", "label")
    assert _rows(dataset) == [Row(n + 1, f"Sentence {n}.", label=str(n % 2)) for n in range(1000)]


def _with_features(table: pa.Table, features: object) -> pa.Table:
    return table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})


def test_classes_of_parquet(tmp_path: Path) -> None:
    """Numbers of classes are read by the names that the file gives them; a number that has none stays, and notes that are wrong are no notes."""
    table = pa.table({"tokens": [["Ann", "sleeps"], ["Bob"]], "ner_tags": [[1, 0], [1]], "label": [1, -1]})
    names = {"names": ["O", "B-PER"], "_type": "ClassLabel"}
    features = {"ner_tags": {"feature": names, "_type": "List"}, "label": {"names": ["bad", "good"]}, "tokens": {}}
    path = tmp_path / "a.parquet"
    pq.write_table(_with_features(table, features), path)
    dataset = read(path)
    assert dataset.chosen == {"words": "tokens", "labels": "ner_tags", "label": "label"}
    assert _rows(dataset) == [
        Row(1, "Ann sleeps", labels=("B-PER", "O"), label="good"),
        Row(2, "Bob", labels=("B-PER",), label="-1"),
    ]
    for wrong in ([], {"label": 1}, {"label": {"names": [1]}}, {"label": {"feature": []}}):
        pq.write_table(_with_features(table, wrong), path)
        assert _rows(read(path))[0].label == "1"


CONLL2003 = "-DOCSTART- -X- -X- O\n\nEU NNP B-NP B-ORG\nrejects VBZ B-VP O\n. . O O\n\nPeter NNP B-NP B-PER\n"


def test_conll_2003(tmp_path: Path) -> None:
    """Four columns: words, parts of speech, and entity labels last; what begins a document is no sentence."""
    dataset = _read(tmp_path, "eng.testa.conll", CONLL2003)
    assert dataset.chosen == {"words": "column 1", "pos": "column 2", "labels": "column 4"}
    assert _rows(dataset) == [
        Row(3, "EU rejects .", pos=("NNP", "VBZ", "."), labels=("B-ORG", "O", "O")),
        Row(7, "Peter", pos=("NNP",), labels=("B-PER",)),
    ]


@pytest.mark.parametrize("separator", [" ", "\t"])
def test_conll_of_two_columns(tmp_path: Path, separator: str) -> None:
    """Words and entity labels in the IO scheme; a word may be a number sign."""
    content = "# O\nJapanese I-MISC\n\n\nBand O\n".replace(" ", separator)
    dataset = _read(tmp_path, "wiki.conll.txt", content)
    assert dataset.format == "conll"
    assert _rows(dataset) == [Row(1, "# Japanese", labels=("O", "I-MISC")), Row(5, "Band", labels=("O",))]


def test_conll_of_parts_of_speech(tmp_path: Path) -> None:
    """Two columns that are no entity labels are words and parts of speech."""
    assert _rows(_read(tmp_path, "a.conll", "Cats NOUN\nsleep VERB\n")) == [Row(1, "Cats sleep", pos=("NOUN", "VERB"))]


def test_conllu(tmp_path: Path) -> None:
    """The text as it was written; contractions divided where their words are its parts, else as their first word; empty nodes are not written."""
    dataset = _read(tmp_path, "a.conllu", CONLLU)
    first, second = _rows(dataset)
    assert (first.number, first.text) == (1, "She can't sit: well.")
    words = [first.text[start:end] for start, end in find_words(first.text)]
    assert words == ["She", "can", "'", "t", "sit", ":", "well", "."]
    # The word "can" begins with ca (AUX); the apostrophe and t are within n't.
    assert first.pos == ("PRON", "AUX", "PART", "PART", "VERB", "PUNCT", "ADV", "PUNCT")
    assert (second.number, second.text, second.pos) == (13, "au lac", ("ADP", "NOUN"))


def test_other_tags_of_a_treebank(tmp_path: Path) -> None:
    """Any column of tags may be the parts of speech, or labels."""
    first, _ = _rows(_read(tmp_path, "a.conllu", CONLLU, {"pos": "xpos", "labels": "deprel"}))
    assert first.pos is not None
    assert (first.pos[0], first.labels and first.labels[0]) == ("PRP", "nsubj")


def test_text(tmp_path: Path) -> None:
    """A line is an input; blank ones are none."""
    assert _rows(_read(tmp_path, "a.txt", "One.\n\n  Two. \n")) == [Row(1, "One."), Row(3, "  Two. ")]


@pytest.mark.parametrize(
    ("columns", "chosen"),
    [
        ("text,label", {"text": "text", "label": "label"}),
        ("Sentence1,Sentence2,score", {"text": "Sentence1", "text_pair": "Sentence2", "label": "score"}),
        ("premise,hypothesis,gold_label", {"text": "premise", "text_pair": "hypothesis", "label": "gold_label"}),
        ("question1,question2,is_duplicate", {"text": "question1", "text_pair": "question2", "label": "is_duplicate"}),
        ("id,title,content,topic", {"text": "content", "label": "topic"}),
        ("id,remark,other", {"text": "remark"}),
    ],
)
def test_columns_by_name(tmp_path: Path, columns: str, chosen: dict[str, str]) -> None:
    """Names as common data sets have them; else the column of the longest texts."""
    names = columns.split(",")
    kinds = {"id": lambda n: str(n), "label": lambda n: str(n % 3)}
    long = {"remark": 20, "content": 20}

    def cell(name: str, n: int) -> str:
        if name in ("id",):
            return kinds["id"](n)
        if name in ("label", "score", "gold_label", "is_duplicate", "topic"):
            return kinds["label"](n)
        return f"text {n} " * long.get(name, 2)

    lines = [columns, *(",".join(cell(name, n) for name in names) for n in range(12))]
    dataset = _read(tmp_path, "a.csv", "\n".join(lines))
    assert dataset.chosen == chosen
    assert set(dataset.reasons) == set(chosen)
    assert dataset.guessed


def test_named_columns(tmp_path: Path) -> None:
    """What the caller names is taken; once the text is named no second text is guessed."""
    content = "sentence1,sentence2,label\nOne.,Two.,0\nThree.,Four.,1\n"
    assert _rows(_read(tmp_path, "a.csv", content, {"text": "sentence2"}))[0] == Row(2, "Two.", label="0")
    swapped = {"text": "sentence2", "text_pair": "sentence1", "label": "label"}
    dataset = _read(tmp_path, "a.csv", content, swapped)
    assert (dataset.chosen, dataset.guessed) == (swapped, False)
    with pytest.raises(InvalidRequest) as raised:
        _read(tmp_path, "a.csv", content, {"text": "sentence3"})
    assert raised.value.pointer == "/columns/text"


def test_formats(tmp_path: Path) -> None:
    """The format is that of the suffix unless another is given; one that there is not is refused."""
    path = tmp_path / "lines.csv"
    path.write_text("One, two.\nThree.\n")
    assert [row.text for row in read(path, format="text").rows] == ["One, two.", "Three."]
    with pytest.raises(Unknown, match="Available: jsonl, csv"):
        read(path, format="xml")
    assert list(FORMATS) == [one.name for one in FORMATS.values()]


def test_a_row_as_json() -> None:
    """Rows go through JSON unharmed."""
    rows = [Row(3, "A.", "B.", ("X",), ("O",), "1"), Row(4, "A.")]
    assert [Row.from_dict(json.loads(json.dumps(row.as_dict()))) for row in rows] == rows


def test_a_report_is_json(tmp_path: Path) -> None:
    """What is known of a data set can be sent."""
    dataset = _read(tmp_path, "a.csv", "text,label\nOne.,0\n,1\n")
    list(dataset.rows)
    report = json.loads(json.dumps(dataset.report()))
    assert report["bad_rows"] == [{"row": 3, "problem": "The text is missing."}]
    assert (report["rows"], report["bad_count"], report["format"]) == (1, 1, "csv")


@pytest.mark.parametrize(("file", "content"), [
    ("pandas.csv", ",text,label\n0,The cat sat on the mat.,pos\n1,It rained.,neg\n"),
    ("pandas.tsv", "\ttext\tlabel\n0\tThe cat sat on the mat.\tpos\n1\tIt rained.\tneg\n"),
])  # fmt: skip
def test_an_index_without_a_name(tmp_path: Path, file: str, content: str) -> None:
    """As pandas writes one: the others are headings still."""
    dataset = _read(tmp_path, file, content)
    assert dataset.columns == ("column 1", "text", "label")
    assert _rows(dataset) == [Row(2, "The cat sat on the mat.", label="pos"), Row(3, "It rained.", label="neg")]


@pytest.mark.parametrize("content", [
    'text;label\n"Hello; world";1\nPlain text;0\n',
    'text;label\n"Hello, world";1\nPlain text;0\n',
    'text;label\nOne;1\nTwo;1\nThree;1\n"Begun\nand ended";0\n',
])  # fmt: skip
def test_separators_within_quotes(tmp_path: Path, content: str) -> None:
    """They are text, also where the separator is looked for."""
    dataset = _read(tmp_path, "text.csv", content)
    assert dataset.columns == ("text", "label")
    assert len(_rows(dataset)) == content.count(";") - 1 - content.count("; ")


def test_long_values_and_truth_values(tmp_path: Path) -> None:
    """A value may be as long as a line, and labels may be true or false."""
    dataset = _read(tmp_path, "long.csv", f"text,label\n{'a ' * 80_000},x\n")
    assert _rows(dataset) == [Row(2, "a " * 80_000, label="x")]
    pair = {"question1": "Why?", "question2": "Why so?", "is_duplicate": True}
    dataset = _read(tmp_path, "pairs.jsonl", json.dumps(pair) + "\n")
    assert _rows(dataset) == [Row(1, "Why?", "Why so?", label="true")]


@pytest.mark.parametrize("start", ["[\n", "["])
def test_an_array_of_objects_is_one_document(tmp_path: Path, start: str) -> None:
    """Also with an object on each line, of which the last one alone would be a row."""
    with pytest.raises(InvalidRequest, match="one JSON document"):
        _read(tmp_path, "array.jsonl", start + '{"text": "One."},\n{"text": "Two."}\n]\n')


def test_a_long_heading_beside_a_known_one(tmp_path: Path) -> None:
    """As the questions of a survey are."""
    dataset = _read(tmp_path, "survey.csv", "What did you think of the film,label\nI was asleep.,neg\nFine.,pos\n")
    assert dataset.columns == ("What did you think of the film", "label")
    assert [row.number for row in _rows(dataset)] == [2, 3]


@pytest.mark.parametrize("separator", [",", ";"])
def test_a_return_within_a_line(tmp_path: Path, separator: str) -> None:
    """It is the row that cannot be read, for this reason, and not the file."""
    dataset = _read(tmp_path, "return.csv", f"text{separator}label\nOne\rline{separator}1\nTwo{separator}0\n")
    assert list(dataset.rows) == [Row(3, "Two", label="0")]
    assert [(bad.number, "carriage return" in bad.problem) for bad in dataset.bad] == [(2, True)]


def test_an_open_quote_before_long_lines(tmp_path: Path) -> None:
    """Where the separator is looked for, they are one value, longer than that of any row."""
    line = f"{'a ' * (LINE_BYTES // 2 - 1)}\n"
    dataset = _read(tmp_path, "open.csv", f'text;label\n"{line * 4}One;1\n')
    assert list(dataset.rows) == [Row(6, "One", label="1")]
    assert "not closed" in dataset.bad[0].problem
