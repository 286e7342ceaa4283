"""JSON objects as flat arrays of members (`parse_objects`), and one object as a dict (`parse_object`).

The arrays come from one compiled pass over the bytes (`_kernels.py`). Objects that it does not read, because
they are malformed or unusual, are parsed by Python's own parser, which also knows the reason. So are all, as
long as compiling the pass would not pay.

>>> _ = read_objects.compiled()
>>> parsed = parse_objects(np.frombuffer(b'{"a": 1, "b": "x"} {"a": 2.5', np.uint8), [0, 19], [18, 28])
>>> parsed.status.tolist(), parsed.names, parsed.kind.tolist()
([0, 1], ['a', 'b'], [1, 3])
>>> parse_object(b'{"a": 2.5')
"malformed row: Expecting ',' delimiter, character 10"
"""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from tocsin.errors import TocsinError
from tocsin.model.buffers import to_numpy
from tocsin.model.columns import Index, gathered
from tocsin.model.jsonlines._kernels import DOUBLE, LONG, UNUSUAL, EntryArrays, NameTable, read_objects

__all__ = ["JsonRow", "JsonText", "Parsed", "parse_array", "parse_object", "parse_objects", "parse_plain"]

_SLOW_SECONDS = 1.5e-7  # that a byte takes without the kernel
_SENTINEL = np.zeros(2, np.uint8)
JsonText = bytes | bytearray | memoryview | str
JsonRow = dict[str, Any] | str  # or the reason why it is bad


class Parsed(NamedTuple):
    """Objects as arrays; the members of object k are start[k] to start[k + 1]."""

    data: NDArray[np.uint8]  # texts are decoded in place
    status: NDArray[np.uint8]  # READ, UNUSUAL or BLANK
    start: Index
    name: NDArray[np.int32]
    kind: NDArray[np.uint8]
    value: Index  # an integer, the bits of a double, or where a text begins
    end: Index  # of a text
    names: list[str]


def parse_objects(raw: NDArray[np.uint8], begin: ArrayLike, end: ArrayLike) -> Parsed:
    """The JSON objects that should be at bytes begin[k]..end[k]-1."""
    first, last = np.asarray(begin, np.int64), np.asarray(end, np.int64)
    most = int(np.count_nonzero(raw == ord(":")))
    out = EntryArrays(
        np.empty(len(first), np.uint8),
        np.zeros(len(first) + 1, np.int64),
        np.empty(most, np.int32),
        np.empty(most, np.uint8),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
    )
    names = NameTable(
        np.zeros(1 << (2 * most + 1).bit_length(), np.int32),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.full(most + 1, -1, np.int32),
        np.zeros(1, np.int64),
    )
    data = np.concatenate([raw, _SENTINEL])
    if read_objects.pays(_SLOW_SECONDS * len(raw)):
        read_objects(data, first, last, names, out)
    else:
        out.status[:] = UNUSUAL
    count, total = int(names.count[0]), int(out.start[-1])
    spans = zip(names.begin[:count].tolist(), names.end[:count].tolist(), strict=True)
    known = [data[a:z].tobytes().decode() for a, z in spans]
    name, kind, value, ends = (column[:total] for column in out[2:])
    parsed = Parsed(data, out.status, out.start, name, kind, value, ends, known)
    _read_long(parsed)
    return parsed


def _read_long(parsed: Parsed) -> None:
    """Long numbers become doubles, correctly rounded."""
    at = np.flatnonzero(parsed.kind == LONG)
    if not len(at):
        return
    texts = gathered(parsed.data, parsed.value[at], parsed.end[at])
    try:
        values = to_numpy(texts.cast(pa.float64()))
    except pa.ArrowInvalid:  # 1e999 is infinite
        values = np.array([float(text) for text in texts.to_pylist()])
    parsed.kind[at] = DOUBLE
    parsed.value[at] = (values + 0.0).view(np.int64)


# -- one by one ------------------------------------------------------------------------------------


def parse_object(text: bytes | str, *, exact: bool = False) -> JsonRow:
    """The JSON object of a text, or the reason why it is none."""
    try:
        decoded = text.decode() if isinstance(text, bytes) else text
        number = _exact_number if exact else None
        return _row(json.loads(decoded, object_pairs_hook=_distinct, parse_int=_integer, parse_float=number))
    except json.JSONDecodeError as error:
        return f"malformed row: {error.msg}, character {error.colno}"
    except UnicodeDecodeError as error:
        return f"malformed row: not UTF-8, byte {error.start}"
    except RecursionError as error:
        return f"malformed row: {error}"


def parse_plain(text: JsonText) -> dict[str, Any] | None:
    """The object of a text as a dict, fast; None if it may be bad, or mean something else to `parse_object`.

    orjson takes the last of equal names, so they are counted: each member has a colon.

    >>> parse_plain(b'{"a": 1, "b": "x:y"}'), parse_plain(b'{"a": 1, "a": 2}')
    ({'a': 1, 'b': 'x:y'}, None)
    """
    if not isinstance(text, str | bytes | bytearray | memoryview):
        kind = type(text).__name__
        hint = "use publish for a dict" if isinstance(text, dict) else "give it as bytes or str"
        raise TocsinError(f"an event as JSON is a text, not {kind}", hint=hint)
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else bytes(text)
    try:
        row = orjson.loads(raw.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError:
        return None
    if type(row) is not dict:
        return None
    inside = raw.count(b":") - len(row)  # texts, if there is no other member
    if inside and (b"\\u003" in raw or inside != _colons(row)):
        return None
    return row


def _colons(row: dict[str, Any]) -> int:
    """In names and texts; what is nested may have others."""
    texts = sum(value.count(":") for value in row.values() if type(value) is str)
    return texts + sum(name.count(":") for name in row)


def parse_array(text: str) -> list[JsonRow]:
    """The objects of a JSON array, or why each is bad; ValueError if it is no JSON at all."""
    try:
        values = json.loads(text, object_pairs_hook=_distinct, parse_int=_integer)
    except RecursionError as error:
        raise ValueError(str(error)) from None
    return [_row(value) for value in values]


def _row(value: Any) -> JsonRow:
    if isinstance(value, _RepeatedName):
        return f"malformed row: {value.name!r} occurs twice"
    if isinstance(value, dict):
        return value
    return f"malformed row: not a JSON object but {type(value).__name__}"


class _RepeatedName(NamedTuple):
    """An object in which a name occurs twice."""

    name: str

    def __repr__(self) -> str:
        return f"{{{self.name!r}: ...}}"


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any] | _RepeatedName:
    row = dict(pairs)
    if len(row) == len(pairs):
        return row
    names = [name for name, _ in pairs]
    return _RepeatedName(next(name for i, name in enumerate(names) if name in names[:i]))


class _TooLong:
    """An integer of more digits than Python reads: no value of any type."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return f"{self._text[:20]}... ({len(self._text)} characters)"


def _exact_number(text: str) -> Any:
    """A number with a point as it is written; infinite where it is beyond all doubles."""
    near = float(text)
    return near if math.isinf(near) else Decimal(text)


def _integer(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        return _TooLong(text)
