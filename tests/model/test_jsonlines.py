"""JSON text means the same as the dicts it denotes: read at once, or line by line by Python's parser."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tocsin.errors import BadRow
from tocsin.model.change import ChangeBatch
from tocsin.model.jsonlines._kernels import read_objects
from tocsin.model.jsonlines.changes import read_lines, read_object
from tocsin.model.jsonlines.parse import parse_array, parse_object, parse_plain
from tocsin.model.schema import Field, Stream, Table, Type

OPEN = Stream("events")
FIELDS = (
    Field("k", Type.BIGINT),
    Field("x", Type.DOUBLE),
    Field("s", Type.STRING),
    Field("b", Type.BOOLEAN),
    Field("d", Type.DATE),
    Field("t", Type.TIMESTAMP),
)
TABLE = Table("rows", FIELDS, key=("k",))
CLOSED = Stream("declared", FIELDS)


@pytest.fixture(autouse=True, scope="module")
def _compiled() -> None:
    read_objects.compiled()


def one_by_one(relation: Table | Stream, text: bytes) -> tuple[Any, list[BadRow]]:
    """The meaning of JSON lines: each parsed by Python, then read as a dict."""
    numbers, rows, bad = [], [], []
    for number, line in enumerate(text.split(b"\n")):
        row = parse_object(line) if line.strip(b" \t\r\n") else None
        if isinstance(row, str):
            bad.append(BadRow(number, row))
        elif row is not None:
            numbers.append(number)
            rows.append(row)
    ops = [row.pop("_op", "insert") for row in rows]
    seqs = [row.pop("_seq", None) for row in rows] if any("_seq" in row for row in rows) else None
    batch, worse = ChangeBatch.from_dicts(relation, rows, ops, seqs, json=True)
    bad += [BadRow(numbers[row], reason) for row, reason in worse]
    return facts(batch.renumbered(np.array(numbers, np.int64))), sorted(bad)


def facts(batch: ChangeBatch) -> tuple[list[Any], dict[str, list[int]]]:
    seq = [None] * len(batch) if batch.seq is None else batch.seq.tolist()
    gave = [
        [name for name in batch.relation.names if batch.gave(name)[i]] for i in range(len(batch))
    ]  # which columns are given
    rows = [
        [(name, type(value), repr(value)) for name, value in row.items()] for row in batch.rows.to_dicts()
    ]
    cells = list(zip(batch.origin.tolist(), batch.op.tolist(), seq, gave, rows, strict=True))
    kept = set(batch.origin.tolist())
    nested = {name: sorted(kept & set(events.tolist())) for name, events in batch.nested.items()}
    return cells, {name: events for name, events in nested.items() if events}


def check(relation: Table | Stream, text: bytes) -> None:
    batch, bad = read_lines(relation, text)
    expected, worse = one_by_one(relation, text)
    assert facts(batch) == expected
    assert bad == worse


# -- texts -----------------------------------------------------------------------------------------

blanks = st.sampled_from(["", " ", "\t", "  ", "\r"])
names = st.sampled_from(["a", "k", "x", "s", "b", "d", "t", "K", "é", 'q"', "", "_op", "_seq"]) | st.text(
    max_size=3
)
digits = st.text("0123456789", min_size=1, max_size=25)
numbers = (
    st.integers().map(str)
    | st.integers(-(2**70), 2**70).map(str)
    | st.sampled_from(
        [str(2**63 - 1), str(2**63), str(-(2**63)), str(-(2**63) - 1), "-0", "-0.0", "0e5", "1e999"]
    )
    | st.floats(allow_nan=False, allow_infinity=False).map(repr)
    | st.builds(
        "{}{}.{}{}".format,
        st.sampled_from(["", "-"]),
        st.integers(0, 10**6),
        digits,
        st.sampled_from(["", "e3", "E-7"]),
    )
    | st.builds("{}e{}".format, st.integers(0, 10**20), st.integers(-330, 330))
)
texts = (
    st.text(max_size=6)
    | st.text('aé€😀"\\/\n\x00', max_size=6)
    | st.sampled_from(
        ["NaN", "Infinity", "insert", "update", "2024-01-31", "2024-01-31T05:06:07Z", "2024-13-01"]
    )
)


@st.composite
def written(draw: st.DrawFn, text: str) -> str:
    """A text as JSON, with escapes of every kind."""
    out = ['"']
    for character in text:
        if character in '"\\' or character < " ":
            out.append(json.dumps(character)[1:-1])
        elif draw(st.integers(0, 5)) == 0:
            out.append("\\/" if character == "/" else json.dumps(character)[1:-1])
        else:
            out.append(character)
    return "".join([*out, '"'])


scalars = st.sampled_from(["null", "true", "false"]) | numbers | texts.flatmap(written)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: "[" + ", ".join(items) + "]")
        | st.lists(inner, max_size=3).map(
            lambda items: "{" + ",".join(f'"n{i % 2}":{v}' for i, v in enumerate(items)) + "}"
        )
    ),
    max_leaves=5,
)


@st.composite
def objects(draw: st.DrawFn) -> str:
    members = []
    for name in draw(st.lists(names, max_size=6)):
        parts = [
            draw(blanks),
            draw(written(name)),
            draw(blanks),
            ":",
            draw(blanks),
            draw(values),
            draw(blanks),
        ]
        members.append("".join(parts))
    return draw(blanks) + "{" + (",".join(members) or draw(blanks)) + "}" + draw(blanks)


lines = (
    st.lists(objects() | blanks | values, max_size=6)
    .map("\n".join)
    .map(lambda text: text.encode("utf-8", "surrogatepass"))
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Lines with a few bytes changed, removed or doubled."""
    text = bytearray(draw(lines))
    for _ in range(draw(st.integers(1, 3))):
        if text:
            at = draw(st.integers(0, len(text) - 1))
            text[at : at + draw(st.integers(0, 1))] = draw(
                st.binary(max_size=1) | st.just(text[at : at + 1] * 2)
            )
    return bytes(text)


@settings(max_examples=300)
@given(lines | damaged(), st.sampled_from([OPEN, TABLE, CLOSED]))
@example(b'{"a":1,"a":2}', OPEN)
@example(b'{"a"b":1}\n{"a\\"b":1}\n{"a"b":1}', OPEN)
@example(b'{"a":"\\ud83d\\ude00","b":"\\ud83d"}', OPEN)
@example(b'{"a":"\xff"}\n{"a":"\xed\xa0\x80"}\n{"a":"\xc3\xa9"}', OPEN)
@example(b'{"k":1,"K":2}\n{"k":null}\n{"k":3,"x":"NaN","s":null}', TABLE)
@example(b'{"_op":["update"],"k":1}\n{"_seq":{},"k":1}', OPEN)
@example(b'{"_op":"delete","k":1}\n{"_op":5,"k":1}\n{"_op":"update","k":2,"_seq":3}', TABLE)
def test_lines_mean_what_their_dicts_mean(text: bytes, relation: Table | Stream) -> None:
    if not text.startswith(b"\xef\xbb\xbf"):
        check(relation, text)


@settings(max_examples=30)
@given(lines, st.sampled_from([OPEN, TABLE]))
def test_lines_mean_the_same_before_the_kernel_is_compiled(text: bytes, relation: Table | Stream) -> None:
    with patch.object(read_objects, "pays", lambda seconds: False):
        check(relation, text)


@given(objects() | values, st.booleans())
@example('{"a": "x:y", "b": 1}', True)
@example('{"a": "\\u003a", "a": 1}', True)
@example('{"a" : 1, "a": 2}', True)
def test_what_orjson_reads_means_the_same(text: str, as_bytes: bool) -> None:
    try:
        row = parse_plain(text.encode() if as_bytes else text)
    except UnicodeEncodeError:
        return
    if row is not None:
        right = parse_object(text)
        assert isinstance(right, dict)
        batches = [ChangeBatch.from_dicts(OPEN, [each], json=True) for each in (row, right)]
        assert facts(batches[0][0]) == facts(batches[1][0]) and batches[0][1] == batches[1][1] == []


@settings(max_examples=200)
@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 25), st.integers(-40, 40))
def test_doubles_are_rounded_correctly(value: float, places: int, exponent: int) -> None:
    texts = [
        repr(value),
        f"{value:.{places}e}",
        f"{value:.{places}f}",
        f"{abs(value):.{places}e}".split("e")[0] + f"e{exponent}",
    ]
    batch, bad = read_lines(OPEN, "\n".join(f'{{"x": {text}}}' for text in texts).encode())
    assert not bad
    expected = [float(text) + 0.0 if not text.lstrip("-").isdigit() else int(text) for text in texts]
    assert [row["x"] for row in batch.rows.to_dicts()] == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'{"a": 1', "malformed row: Expecting ',' delimiter, character 8"),
        (b"[1]", "malformed row: not a JSON object but list"),
        (b'{"a": 1, "a": 2}', "malformed row: 'a' occurs twice"),
        (b'{"a": "\xff"}', "malformed row: not UTF-8, byte 7"),
        (b'{"a": "\\ud800"}', "attribute a: '\\ud800' is not a STRING"),
        (b'{"a": ' + b"1" * 5000 + b"}", "attribute a: 11111111111111111111... (5000 characters) is not"),
        (b'{"a": ' + b"[" * 100_000 + b"}", "malformed row: maximum recursion depth exceeded"),
        (b'{"a": 1} x', "malformed row: Extra data, character 10"),
    ],
)
def test_a_bad_line_is_reported_and_the_rest_is_read(text: bytes, reason: str) -> None:
    batch, bad = read_lines(OPEN, b'{"a": 1}\n\n' + text + b'\n{"b": 2}\n')
    assert batch.rows.to_dicts() == [{"a": 1}, {"b": 2}] and batch.origin.tolist() == [0, 3]
    assert [row for row, _ in bad] == [2] and bad[0].reason.startswith(reason)


def test_nested_values_are_ignored_in_an_open_stream() -> None:
    text = b'{"a": 1, "n": {"x": [1, {"y": null}], "x": 2}, "m": [' + b"9" * 5000 + b'], "b": "z"}'
    batch, bad = read_lines(OPEN, text)
    assert (batch.rows.to_dicts(), bad) == ([{"a": 1, "b": "z"}], [])
    deep = b"[" * 200 + b"]" * 200
    batch, bad = read_lines(OPEN, b'{"a": 1, "n": ' + deep + b"}")
    assert (batch.rows.to_dicts(), bad) == ([{"a": 1}], [])


def test_an_object_may_have_several_lines() -> None:
    batch, bad = read_object(OPEN, '{\n  "a": 1,\r\n\t"b": "é"\n}\n')
    assert (batch.rows.to_dicts(), bad) == ([{"a": 1, "b": "é"}], [])


def test_many_names_and_long_texts() -> None:
    rows = [{f"name{i * 40 + j}": "ab" * i for j in range(40)} for i in range(100)]
    batch, bad = read_lines(OPEN, "\n".join(map(json.dumps, rows)).encode())
    assert (batch.rows.to_dicts(), bad) == (rows, [])


def test_a_byte_order_mark_is_skipped() -> None:
    batch, bad = read_lines(OPEN, b'\xef\xbb\xbf{"a": 1}')
    assert (batch.rows.to_dicts(), bad) == ([{"a": 1}], [])


def test_an_array_with_an_integer_of_5000_digits_has_one_bad_row() -> None:
    first, second = parse_array('[{"a": ' + "1" * 5000 + '}, {"a": 2}]')
    _, bad = ChangeBatch.from_dicts(OPEN, [first, second], json=True)  # type: ignore[list-item]
    assert [row for row, _ in bad] == [0]
