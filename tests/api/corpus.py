"""Invalid requests, and valid ones that look invalid. Each contains MARK wherever possible, which no response may echo."""

from __future__ import annotations

import codecs
import json
from dataclasses import dataclass, field
from typing import Any

MARK = "zq7mark"
REFUSED = frozenset(range(400, 500))
# Valid but unusual: accepted or rejected, but never a server error.
EITHER = REFUSED | {200, 202}
GOOD: dict[str, Any] = {"model": "bert", "text": "The cat sat."}
ANALYSES = "/api/v1/analyses"
JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Case:
    """One request and the statuses it may be answered with."""

    id: str
    method: str = "POST"
    path: str = ANALYSES
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=lambda: dict(JSON))
    allowed: frozenset[int] = REFUSED


def post(id_: str, body: Any, allowed: frozenset[int] = REFUSED, path: str = ANALYSES) -> Case:
    """Return a POST of a JSON body."""
    return Case(id_, path=path, body=json.dumps(body).encode(), allowed=allowed)


def raw(id_: str, body: bytes) -> Case:
    """Return a POST of bytes with the media type of JSON."""
    return Case(id_, body=body)


def get(id_: str, path: str, **headers: str) -> Case:
    """Return a GET that is rejected."""
    return Case(id_, "GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})


def with_(**change: Any) -> dict[str, Any]:
    """Return the valid request with changed fields."""
    return {**GOOD, **change}


def literal(text: str) -> bytes:
    """Return the valid request with an unquoted literal in place of a number."""
    return b'{"model": "bert", "text": "' + MARK.encode() + b'", "max_tokens": ' + text.encode() + b"}"


TEXTS = [
    post("text-empty", with_(text="")),
    post("text-spaces", with_(text=" \t\n\u00a0\u2003 ")),
    post("text-1-megabyte", with_(text=MARK + "a" * 1_000_000)),
    post("text-1-megabyte-of-words", with_(text=f"{MARK} " * 140_000)),
    post("text-one-long-word", with_(text="a" * 300_000)),
    post("text-one-word-at-the-limit", with_(text="a" * 262_144), EITHER),
    post("text-one-word-at-the-limit-bpe", with_(model="gpt2", text="a" * 262_144)),
    post("text-combining-marks", with_(text="a" + "\u0301" * 10_000), EITHER),
    post("text-combining-marks-bpe", with_(model="gpt2", text="a" + "\u0301" * 10_000)),
    post("text-nul", with_(text=f"{MARK}\0b")),
    post("text-low-surrogate", with_(text=f"{MARK}\udc00")),
    post("text-high-surrogate", with_(text=f"\ud800{MARK}")),
    post("text-swapped-surrogates", with_(text="\udc00\ud800")),
    post("text-escaped-surrogate-pair", with_(text="\U0001f600"), EITHER),
    post("text-noncharacter", with_(text="a\uffff\U0010ffff"), EITHER),
    post("text-control-characters", with_(text="a\x01\x1b[31m\x7f b"), EITHER),
    post("text-only-zero-width", with_(text="\u200b\u200d\ufeff"), EITHER),
    post("text-only-combining", with_(text="\u0301\u0301"), EITHER),
    post("text-rtl-override", with_(text="\u202egnp.exe"), EITHER),
    post("text-bom-inside", with_(text="\ufeffcat"), EITHER),
    post("text-special-tokens", with_(text="[CLS] [MASK] [SEP] [PAD]"), EITHER),
    post("text-end-of-text", with_(model="gpt2", text="<|endoftext|>" * 10), EITHER),
    post("text-html", with_(text="<img src=x onerror=alert(1)></script>"), EITHER),
    post("text-missing", {"model": "bert"}),
    post("text-null", with_(text=None)),
    post("pair-empty", with_(text_pair="")),
    post("pair-spaces", with_(text_pair="  ")),
    post("pair-surrogate", with_(text_pair="\ud800")),
    post("pair-nul", with_(text_pair="\0")),
    post("pair-without-text", {"model": "bert", "text_pair": MARK}),
    post("pair-too-long", with_(text_pair="b " * 400)),
    post("pair-of-a-model-without-pairs", with_(model="gpt2", text_pair="b"), EITHER),
]
TOKENS = [
    post("ids-and-text", with_(token_ids=[1])),
    post("ids-empty", {"model": "bert", "token_ids": []}),
    post("ids-negative", {"model": "bert", "token_ids": [-1]}),
    post("ids-huge", {"model": "bert", "token_ids": [10**18]}),
    post("ids-beyond-64-bits", {"model": "bert", "token_ids": [2**70]}),
    post("ids-of-no-token", {"model": "bert", "token_ids": [999_999]}, EITHER),
    post("ids-text", {"model": "bert", "token_ids": [MARK]}),
    post("ids-floats", {"model": "bert", "token_ids": [1.5]}),
    post("ids-integral-floats", {"model": "bert", "token_ids": [1.0]}),
    post("ids-booleans", {"model": "bert", "token_ids": [True]}),
    post("ids-null", {"model": "bert", "token_ids": [None]}),
    post("ids-nested", {"model": "bert", "token_ids": [[1]]}),
    post("ids-not-a-list", {"model": "bert", "token_ids": 1}),
    post("ids-too-many", {"model": "bert", "token_ids": [1] * 100_001}),
    post("ids-more-than-the-model-takes", {"model": "bert", "token_ids": [1] * 10_000}),
]
FIELDS = [
    *(
        post(f"{name}-{kind}", with_(**{name: value}))
        for name in (
            "model",
            "text",
            "text_pair",
            "lenses",
            "measures",
            "layers",
            "heads",
            "max_tokens",
            "dtype",
            "kind",
        )
        for kind, value in (("object", {MARK: 1}), ("true", True), ("float", 1.5), ("nested", [[MARK]]))
    ),
    *(post(f"maps-{kind}", with_(maps=value)) for kind, value in (("text", "true"), ("one", 1), ("null", None))),
    *(post(f"max-tokens-{value}", with_(max_tokens=value)) for value in (0, -1, 10**12, 2**63, "5", 1e300)),
    post("layers-empty", with_(layers=[])),
    post("layers-negative", with_(layers=[-1])),
    post("layers-unknown", with_(layers=[2])),
    post("layers-huge", with_(layers=[10**9])),
    post("layers-too-many", with_(layers=[0] * 10_001)),
    post("heads-empty", with_(heads=[])),
    post("heads-unknown", with_(heads=[4])),
    post("heads-text", with_(heads="0")),
    post("lens-unknown", with_(lenses=[MARK])),
    post("lens-empty-name", with_(lenses=[""])),
    post("lens-surrogate", with_(lenses=["\ud800"])),
    post("lens-nothing-asked", with_(lenses=[], measures=[])),
    post("lenses-too-many", with_(lenses=["weights"] * 101)),
    post("measure-unknown", with_(measures=[MARK])),
    post("mechanism-unknown", with_(mechanism=MARK)),
    post("mechanism-unknown-object", with_(mechanism={"name": MARK})),
    post("mechanism-extra", with_(mechanism={"name": "softmax", MARK: 1})),
    post("mechanism-number", with_(mechanism=1)),
    post("mechanism-list", with_(mechanism=["softmax"])),
    post("mechanism-list-name", with_(mechanism={"name": ["softmax"]})),
    post("mechanism-surrogate", with_(mechanism="\ud800")),
    post("kind-unknown", with_(kind=MARK)),
    post("kind-not-this-model", with_(kind="cross")),
    post("dtype-unknown", with_(dtype=MARK)),
    post("dtype-too-coarse", with_(dtype="float16"), EITHER),
    post("image", with_(image=MARK)),
    post("extra-key", with_(**{MARK: 1})),
    post("extra-key-surrogate", with_(**{"\ud800": 1})),
    post("extra-key-proto", with_(__proto__={"a": 1})),
    post("extra-key-pointer", with_(**{"a/~1\n": 1})),
    post("client-key", with_(id="0" * 32)),
    post("trust-remote-code", with_(trust_remote_code=True)),
]
NAMES = [
    *(
        post(f"model-{number}", with_(model=name))
        for number, name in enumerate(
            [
                "", " ", MARK, f"org/{MARK}", f"a/b/{MARK}", "..", ".", "../bert", "bert/..", "bert/../bert", "./bert", "bert/",
                "/etc/passwd", "/", "\\..\\bert", "C:\\models\\bert", "bert\0", "\0", "%2e%2e/bert", "..%2fbert", "%252e%252e%252f", "bert%00",
                "\u2024\u2024/bert", "bert\u2215..", "．．／bert", "bert\u202e", "bert ", " bert", "bert\n", "BERT", "b\u0435rt", "~", "~root",
                "$HOME", "$(id)", "`id`", "file:///etc/passwd", "http://127.0.0.1/", "https://example.org/model", "org--name/x", "org/name.git",
                "org/na..me", "-rf", "models--org--name", "a" * 97, "a" * 200, "a" * 201, "a" * 100_000, "\ud800", "t5-small", "gpt2/gpt2",
                "vit-base-patch16-224", "bert-base-uncased", "con", "nul", "org/" + "a" * 96, "org/" + "a" * 97, "..;/bert", "bert;x", "bert?x", "bert#x",
            ]
        )
    ),
]  # fmt: skip
JSONS = [
    *(
        raw(f"literal-{text[:9]}", literal(text))
        for text in ("NaN", "Infinity", "-Infinity", "1e999", "-1e999", "-0", "0x10", "1_0", "01", "+1", ".5", "'5'")
    ),
    raw("literal-5000-digits", literal("9" * 5000)),
    raw("literal-5000-decimals", literal("0." + "9" * 5000)),
    raw("nested-arrays", b"[" * 100_000),
    raw("nested-closed-arrays", b"[" * 100_000 + b"]" * 100_000),
    raw("nested-objects", b'{"a":' * 100_000),
    raw("nested-in-a-field", b'{"model": "bert", "text": ' + b"[" * 50_000 + b"]" * 50_000 + b"}"),
    raw("million-keys", b"{" + b",".join(b'"%d":0' % number for number in range(200_000)) + b"}"),
    raw("invalid-utf8", b'{"model": "bert", "text": "\xff\xfe' + MARK.encode() + b'"}'),
    raw("overlong-utf8", b'{"model": "bert", "text": "\xc0\xaf"}'),
    raw("utf8-surrogate", b'{"model": "bert", "text": "\xed\xa0\x80"}'),
    raw("latin-1", json.dumps(with_(text="Größe"), ensure_ascii=False).encode("latin-1")),
    Case("bom", body=codecs.BOM_UTF8 + json.dumps(GOOD).encode(), allowed=EITHER),
    Case("utf-16", body=json.dumps(GOOD).encode("utf-16"), allowed=EITHER),
    Case("utf-32", body=json.dumps(GOOD).encode("utf-32-be"), allowed=EITHER),
    raw("truncated", json.dumps(GOOD).encode()[:-4]),
    raw("trailing-comma", b'{"model": "bert", "text": "a",}'),
    raw("trailing-garbage", json.dumps(GOOD).encode() + MARK.encode()),
    raw("two-documents", json.dumps(GOOD).encode() * 2),
    raw("single-quotes", b"{'model': 'bert', 'text': 'a'}"),
    raw("comment", b'{"model": "bert", /* a */ "text": "a"}'),
    raw("raw-newline-in-string", b'{"model": "bert", "text": "a\nb"}'),
    raw("bad-escape", b'{"model": "bert", "text": "\\x41"}'),
    raw("half-escape", b'{"model": "bert", "text": "\\u12"}'),
    raw("empty-body", b""),
    raw("spaces-only", b"   "),
    raw("nul-only", b"\0"),
    *(
        raw(f"document-{kind}", kind.encode())
        for kind in ("[]", "{}", "null", "true", "1", '"bert"', '[{"model": "bert"}]')
    ),
    Case("duplicate-keys", body=b'{"model": "bert", "text": "a", "text": "b"}', allowed=EITHER),
    raw("too-large", b'{"model": "bert", "text": "' + b"a" * 9_000_000 + b'"}'),
    Case(
        "form", body=b"model=bert&text=" + MARK.encode(), headers={"Content-Type": "application/x-www-form-urlencoded"}
    ),
    Case("multipart", body=b"--x\r\n", headers={"Content-Type": "multipart/form-data; boundary=x"}),
    Case("plain", body=json.dumps(GOOD).encode(), headers={"Content-Type": "text/plain"}),
    Case("no-content-type", body=json.dumps(GOOD).encode(), headers={}),
    Case("gzip", body=b"\x1f\x8b", headers={**JSON, "Content-Encoding": "gzip"}),
]
BATCHES = [
    post(f"batch-{number}", body, path=f"{ANALYSES}/batch")
    for number, body in enumerate(
        [
            {}, {"model": "bert"}, {"model": "bert", "inputs": []}, {"model": "bert", "inputs": [{}]}, {"model": "bert", "inputs": MARK},
            {"model": "bert", "inputs": [MARK]}, {"model": "bert", "inputs": [{"text": "a", MARK: 1}]}, {"model": "bert", "inputs": [{"text": "\ud800"}]},
            {"model": "bert", "inputs": [{"text": "a"}] * 1001}, {"model": MARK, "inputs": [{"text": "a"}]},
            {"model": "bert", "inputs": [{"text": "a", "token_ids": [1]}]}, {"model": "bert", "inputs": [{"token_ids": [-1]}]},
            {"model": "bert", "inputs": [{"text": "a"}], "lenses": [MARK]}, {"model": "bert", "inputs": [{"text": "a"}], "mechanism": MARK},
            {"model": "bert", "inputs": [{"text": "a"}], "text": "b"}, {"model": "bert", "inputs": [{"text": "a"}, {"text": " "}]},
        ]
    )
]  # fmt: skip
DEEP = f"{ANALYSES}/{'0' * 32}"
PATHS = [
    get("id-unknown", DEEP),
    *(get(f"id-{number}", f"{ANALYSES}/{id_}") for number, id_ in enumerate(
        [MARK, "0" * 31, "0" * 33, "A" * 32, "..", "%2e%2e", "%2e%2e%2f%2e%2e", "..%5c..", "%00", "0" * 31 + "%00", "%ff", "%ed%a0%80", "a" * 5000,
         "%25%30%30", "~", "-1", "NaN", "%F0%9F%98%80", "*", "0" * 32 + "%0a", "batch/.."])),
    *(get(f"below-{number}", f"{DEEP}/{rest}") for number, rest in enumerate(
        ["events", "maps/weights", f"maps/{MARK}", "maps/..", "maps/%2e%2e", "maps/%00", "maps/..%2f..", "maps", "grid/weights", "measures/entropy",
         f"measures/{MARK}", "edges/weights?layer=0&head=0", "export", f"export?format={MARK}", MARK, "maps/weights/more", "%2e%2e/%2e%2e"])),
    *(get(f"model-path-{number}", f"/api/v1/models/{name}") for number, name in enumerate(
        [MARK, f"org/{MARK}", "..", "%2e%2e", "..%2f..%2fetc%2fpasswd", "%2Fetc%2Fpasswd", "bert%2f..", "bert%00", "bert%5c..", "%252e%252e", "bert/",
         "//etc/passwd", "%EF%BC%8E%EF%BC%8E%EF%BC%8Fbert", "a" * 5000, "%ff%fe", "org%2fname.git", "org--name%2fx", "bert%0d%0aX-Evil:%201", "%c0%ae%c0%ae"])),
    *(get(f"dataset-{number}", f"/api/v1/datasets/{name}") for number, name in enumerate(
        [MARK, f"hub:{MARK}", f"hub:org/{MARK}/..", "hub:..%2f..", "0" * 32, "%2Fetc%2Fpasswd", "..%2f..%2fetc%2fpasswd", "%00", "%ff", "a" * 5000,
         f"a?columns={MARK}", "a?columns=[]", "a?columns=%7B%22text%22:1%7D", f"{'0' * 32}?format={MARK}"])),
    *(get(f"page-{number}", path) for number, path in enumerate(
        [f"/{MARK}", "/..", "/%2e%2e/%2e%2e/etc/passwd", "/assets/..%2findex.html", "/assets/%2e%2e", "/assets/.", "/assets/%00", "/assets/" + "a" * 5000,
         "/assets/..%5c..", f"/assets/{MARK}", "/assets//etc/passwd", "/api", "/api/v1", "/api/v2/models", "/api/v1/analyses/", "/docs", "/redoc",
         "/api/v1/openapi.json/..", "/.git/config", "/server.lock", "/results.db", "/" + "a" * 15_000])),
    *(get(f"page-of-list-{number}", f"{path}?{query}") for number, (path, query) in enumerate(
        [(ANALYSES, "limit=0"), (ANALYSES, "limit=201"), (ANALYSES, f"limit={MARK}"), (ANALYSES, f"cursor={MARK}"), (ANALYSES, "cursor=" + "1" * 41),
         ("/api/v1/models", "limit=0"), ("/api/v1/models", "limit=1e9"), ("/api/v1/models", "cursor=-1"), ("/api/v1/models", f"cursor={MARK}"),
         ("/api/v1/datasets", "limit=0"), ("/api/v1/datasets", f"cursor={MARK}")])),
]  # fmt: skip
METHODS = [
    Case(f"method-{method}-{number}", method, path, headers={})
    for method in ("PUT", "PATCH", "TRACE", "OPTIONS", "PROPFIND", MARK.upper())
    for number, path in enumerate((ANALYSES, DEEP, "/api/v1/models", "/metrics"))
] + [
    Case("delete-unknown", "DELETE", DEEP, headers={}),
    Case("delete-list", "DELETE", ANALYSES, headers={}),
    Case("post-to-one", path=DEEP, body=b"{}"),
    Case("post-to-models", path="/api/v1/models", body=b"{}"),
]
HEADERS = [
    Case("prefer-long", body=json.dumps(GOOD).encode(), headers={**JSON, "Prefer": "wait=1," + MARK * 100}, allowed=EITHER),
    Case("prefer-odd", body=json.dumps(GOOD).encode(), headers={**JSON, "Prefer": f"wait={MARK}, ;;=,"}, allowed=EITHER),
    get("last-event-id-too-long", f"{DEEP}/events", Last_Event_ID="9" * 41),
    get("last-event-id-odd", f"{DEEP}/events", Last_Event_ID=MARK),
    get("accept-odd", f"{DEEP}/maps/weights", Accept=f"{MARK}/{MARK};q=x, ,,"),
    get("range-odd", f"{DEEP}/export", Range="bytes=" + ",".join(f"{n}-{n + 1}" for n in range(1000))),
    Case("request-id-odd", body=b"{}", headers={**JSON, "X-Request-ID": f"{MARK} ' \" <b>"}),
    Case("forwarded", body=b"{}", headers={**JSON, "X-Forwarded-Host": MARK, "X-Forwarded-For": "1.2.3.4", "Forwarded": f"host={MARK}"}),
]  # fmt: skip
FILES = [
    Case(f"file-{number}", path=f"/api/v1/datasets?name={name}", body=body, headers={"Content-Type": "application/octet-stream"})
    for number, (name, body) in enumerate(
        [(f"{MARK}.csv", b""), (f"{MARK}.jsonl", f'{{"{MARK}": 1}}'.encode()), (f"a.{MARK}", MARK.encode()),
         (f"a.csv&format={MARK}", MARK.encode()), ("a.parquet", MARK.encode()), ("a.tsv&format=conllu", f"{MARK}\n\n".encode()),
         ("", b"One."), ("a" * 5000, b"One."), ("%00.txt", b"\0" * 100)]
    )
]  # fmt: skip
CASES = [*FILES, *TEXTS, *TOKENS, *FIELDS, *NAMES, *JSONS, *BATCHES, *PATHS, *METHODS, *HEADERS]

# Accepted by any byte-level tokenizer, and returned unchanged.
HOSTILE_TEXTS = {
    "img": "<img src=x onerror=alert(1)>",
    "script": "</script><script>alert(1)</script>",
    "svg": "<svg/onload=alert(1)>",
    "entity": "&lt;b&gt; &#x3c;",
    "template": "{{7*7}} ${7*7} <%= 7*7 %> {%x%}",
    "formula": "=HYPERLINK(1) +1 -1 @x",
    "sql": "'; DROP TABLE jobs; --",
    "format": "%s %n {0} {self.__class__}",
    "rtl": "\u202eabc\u202c \u2066x\u2069",
    "ansi": "a\x1b[31mred\x1b[0m",
    "crlf": "a\r\nSet-Cookie: x=1\r\n\r\nb",
    "separators": "a\u2028b\u2029c\u0085d",
    "emoji": "👩‍👩‍👧‍👦 🇩🇪 é",
    "zalgo": "z" + "\u0301\u0302\u0303" * 20,
    "controls": "".join(map(chr, range(1, 32))) + "x\x7f\x80\x9f",
    "noncharacters": "a\ufffe\uffff\U0010ffff\ufffd",
    "quotes": "\"'`\\/",
    "nothing-visible": "x\u200b\u200c\u200d\u2060\ufeff",
}
