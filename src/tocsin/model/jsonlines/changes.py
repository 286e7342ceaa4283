"""JSON text as a `ChangeBatch`: bytes to columns, without a dict per row.

    bytes ─► lines ─► members (`parse.py`) ─► entries of an open stream, or declared columns
                         └─ what is unusual: dicts, one by one ─► `ChangeBatch.from_dicts`

Both ways give the same rows. A line is taken by the first only if its meaning is beyond doubt: anything that
does not fit its column (a text that may be a time or "NaN", an unknown name, a bad `_op`) goes the second
way, which converts it or knows the reason.

>>> from tocsin.model.schema import Stream
>>> batch, bad = read_lines(Stream("events"), b'{"price": 3, "color": "red"}\\n\\n{"price": }')
>>> batch.rows.to_dicts(), bad
([{'price': 3, 'color': 'red'}], [BadRow(row=2, reason='malformed row: Expecting value, character 11')])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.errors import BadRow, ChangeError
from tocsin.model.buffers import to_numpy
from tocsin.model.change import OPS, ChangeBatch, takes_op
from tocsin.model.columns import (
    Index,
    Mask,
    Rows,
    SparseRows,
    TextVector,
    TypedEntries,
    Vector,
    distinct,
    gathered,
)
from tocsin.model.event_source import EventSource, Inside
from tocsin.model.jsonlines._kernels import BIGINT, BLANK, DOUBLE, FALSE, NESTED, NULL, TEXT, TRUE, UNUSUAL
from tocsin.model.jsonlines.inside import KINDS, PathTree, values_inside, vector_of
from tocsin.model.jsonlines.parse import JsonText, Parsed, parse_object, parse_objects, parse_plain
from tocsin.model.schema import Field, Stream, Table, Type, read

__all__ = ["read_lines", "read_object"]

_SPACES = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"


def read_lines(
    relation: Table | Stream, text: JsonText, *, with_seq: bool = True
) -> tuple[ChangeBatch, list[BadRow]]:
    """One change per line; `origin` is the number of its line, from 0. Blank lines are skipped.

    If one line has a `_seq`, all need one; without `with_seq` it is ignored.
    """
    raw = _bytes(text)
    breaks = np.flatnonzero(raw == ord("\n"))
    begin, end = np.concatenate([[0], breaks + 1]), np.concatenate([breaks, [len(raw)]])
    if raw[:3].tobytes() == _BOM:
        begin[0] = 3
    return _Reader(relation, raw, begin, end).changes(with_seq)


def read_object(relation: Table | Stream, text: JsonText) -> tuple[ChangeBatch, list[BadRow]]:
    """One row, in one or more lines; it has no `_op`."""
    raw = _bytes(text)
    if raw[: len(_BOM)].tobytes() == _BOM:
        raw = raw[len(_BOM) :]
    if not raw.tobytes().strip(_SPACES):
        raise ChangeError("the JSON text is empty")
    reader = _Reader(relation, raw, np.zeros(1, np.int64), np.array([len(raw)]))
    batch, bad = reader.changes(True)
    if "_op" in reader.names:
        raise ChangeError("_op is for batches", hint="use apply for rows with an _op each")
    return batch, bad


def _bytes(text: JsonText) -> NDArray[np.uint8]:
    try:
        return np.frombuffer(text.encode() if isinstance(text, str) else text, np.uint8)
    except (UnicodeEncodeError, ValueError, BufferError) as error:
        raise ChangeError(f"the JSON text cannot be read: {error}") from None


class _Reader:
    """The objects of one text. `slow` are those that must be read one by one, as dicts."""

    def __init__(self, relation: Table | Stream, raw: NDArray[np.uint8], begin: Index, end: Index) -> None:
        self._relation, self._raw, self._begin, self._end = relation, raw, begin, end
        self._parsed: Parsed = parse_objects(raw, begin, end)
        self._slow: Mask = self._parsed.status == UNUSUAL
        self._count = len(begin)
        self._object = np.repeat(np.arange(self._count), np.diff(self._parsed.start))  # of each member
        self._numbers = {name: n for n, name in enumerate(self._parsed.names)}
        self.names = set(self._numbers)  # of all objects

    def changes(self, with_seq: bool) -> tuple[ChangeBatch, list[BadRow]]:
        """Good and bad rows; without `with_seq`, `_seq` is ignored."""
        op, (seq, has_seq) = self._ops(), self._seqs()
        rows, given = (self._events(), None) if self._relation.open else self._columns()
        good = np.flatnonzero(~self._slow & (self._parsed.status != BLANK))
        dicts, bad = self._dicts()
        with_seq = with_seq and (bool(has_seq[good].any()) or any("_seq" in row for _, row in dicts))
        if with_seq:
            bad += [BadRow(k, "seq is missing") for k in good[~has_seq[good]].tolist()]
            good = good[has_seq[good]]
        every = np.arange(self._count)
        fast = ChangeBatch(
            self._relation, op, seq if with_seq else None, rows, given, every, self._nested()
        ).take(good)
        if not dicts:
            return fast, sorted(bad)
        slow, worse = self._changes_of(dicts, with_seq)
        return merged(fast, slow), sorted([*bad, *worse])

    # -- what a batch says about its rows ----------------------------------------------------------

    def _members(self, name: str) -> Index:
        """The members of a name, at most one of each object."""
        number = self._numbers.get(name)
        return np.empty(0, np.int64) if number is None else np.flatnonzero(self._parsed.name == number)

    def _ops(self) -> NDArray[np.uint8]:
        op, at = np.full(self._count, OPS["insert"], np.uint8), self._members("_op")
        if len(at):
            is_text = self._parsed.kind[at] == TEXT
            self._slow[self._object[at[~is_text]]] = True
            at = at[is_text]
            coded = gathered(self._parsed.data, self._parsed.value[at], self._parsed.end[at])
            coded = coded.dictionary_encode()
            which = to_numpy(coded.indices)
            for n, text in enumerate(coded.dictionary.to_pylist()):
                here = self._object[at[which == n]]
                if takes_op(self._relation, text):
                    op[here] = OPS[text]
                else:
                    self._slow[here] = True
        return op

    def _seqs(self) -> tuple[Index, Mask]:
        seq, known = np.zeros(self._count, np.int64), np.zeros(self._count, np.bool_)
        at = self._members("_seq")
        whole = self._parsed.kind[at] == BIGINT
        seq[self._object[at[whole]]], known[self._object[at[whole]]] = self._parsed.value[at[whole]], True
        self._slow[self._object[at[~whole]]] = True
        return seq, known

    # -- open streams ------------------------------------------------------------------------------

    def _events(self) -> Rows:
        """All objects as events; those of slow objects have no entries, nor have nested values."""
        p, obj = self._parsed, self._object
        body = np.ones(len(p.name), np.bool_)
        for special in ("_op", "_seq"):
            body[self._members(special)] = False
        if self._slow.any():
            body &= ~self._slow[obj]
        parts = []
        for type, kinds in KINDS.items():
            mine = p.kind == kinds[0]
            for kind in kinds[1:]:
                mine |= p.kind == kind
            at = np.flatnonzero(mine & body)
            if len(at):
                event = obj[at]
                vector = vector_of(p, type, at)
                parts.append(TypedEntries(event, at - p.start[event], p.name[at], vector))
        return SparseRows(parts, tuple(p.names), self._count, self._source())

    def _source(self) -> EventSource | None:
        """The whole events, read from the text again; None if they have nothing but plain values."""
        if not np.any((self._parsed.kind == NESTED) | (self._parsed.kind == NULL)):
            return None
        raw = self._raw.copy() if self._raw.flags.writeable else self._raw

        def read(index: Index) -> list[Mapping[str, Any]]:
            return [_whole(raw[self._begin[k] : self._end[k]].tobytes()) for k in index.tolist()]

        place, parsed = np.full(self._count, -1, np.int64), self._parsed

        def inside(index: Index, tree: PathTree) -> Inside | None:
            place[:] = -1
            place[index] = np.arange(len(index))
            return values_inside(raw, parsed, place, tree)

        return EventSource(read, np.arange(self._count), inside)

    def _nested(self) -> dict[str, Index]:
        """The objects in which a name has a nested value, of an open stream."""
        at = np.flatnonzero(self._parsed.kind == NESTED)
        if not len(at) or not self._relation.open:
            return {}
        name, number = self._parsed.names, self._parsed.name[at]
        return {name[n]: self._object[at[number == n]] for n in distinct(number).tolist()}

    # -- declared columns --------------------------------------------------------------------------

    def _columns(self) -> tuple[Rows, dict[str, Mask] | None]:
        """All objects by declared columns, and in which each column is given; misfits become slow."""
        field_of = np.full(len(self._parsed.names) + 1, -1, np.int64)
        fields = {field: n for n, field in enumerate(self._relation.fields)}
        for number, name in enumerate(self._parsed.names):
            field = self._relation.find(name)
            if field is not None and not np.any(field_of == fields[field]):
                field_of[number] = fields[field]
            elif name not in ("_op", "_seq"):  # unknown, or a second spelling
                self._slow[self._object[self._parsed.name == number]] = True
        which = field_of[self._parsed.name]
        columns, given = [], {}
        for field, n in fields.items():
            at = np.flatnonzero(which == n)
            columns.append((field.name, self._column(field, at)))
            given[field.name] = np.zeros(self._count, np.bool_)
            given[field.name][self._object[at]] = True
        for name in self._relation.key:
            vector = dict(columns)[name]
            self._slow |= ~vector.valid & (self._parsed.status != BLANK)
            if vector.type is Type.DOUBLE:
                self._slow |= np.isnan(vector.values)
        return Rows(columns, self._count), given

    def _column(self, field: Field, at: Index) -> Vector:
        """One column of all objects, from its members."""
        p, kind, fit = self._parsed, self._parsed.kind[at], np.zeros(len(at), np.bool_)
        valid = np.zeros(self._count, np.bool_)
        if field.type is Type.STRING:
            fit = kind == TEXT
            begin, end = np.zeros(self._count, np.int64), np.zeros(self._count, np.int64)
            begin[self._object[at[fit]]], end[self._object[at[fit]]] = p.value[at[fit]], p.end[at[fit]]
            vector: Vector = TextVector(p.data, begin, end, valid)
        else:
            vector = Vector(field.type, Vector.blank(field.type, self._count).values, valid)
            for accepted in _FITTING.get(field.type, ()):
                mine = kind == accepted
                where = self._object[at[mine]]
                if accepted == TEXT:
                    mine[mine] = self._read_times(field.type, at[mine], vector)
                elif accepted == DOUBLE:
                    vector.values[where] = p.value[at[mine]].view(np.float64)
                else:
                    vector.values[where] = (
                        accepted == TRUE if accepted in (TRUE, FALSE) else p.value[at[mine]]
                    )
                fit |= mine
        valid[self._object[at[fit]]] = True
        self._slow[self._object[at[~fit & (kind != NULL)]]] = True
        return vector

    def _read_times(self, type: Type, at: Index, vector: Vector) -> Mask:
        """Dates or timestamps from text, each distinct one once; which could be read."""
        coded = gathered(self._parsed.data, self._parsed.value[at], self._parsed.end[at]).dictionary_encode()
        values = [_time_or_none(type, text) for text in coded.dictionary.to_pylist()]
        known = Vector.of(type, values)
        which = to_numpy(coded.indices)
        vector.values[self._object[at]] = known.values[which]
        return known.valid[which]

    # -- one by one --------------------------------------------------------------------------------

    def _dicts(self) -> tuple[list[tuple[int, dict[str, Any]]], list[BadRow]]:
        """The slow objects, each with its number, and those that are none."""
        found, bad = [], []
        for k in np.flatnonzero(self._slow).tolist():
            text = self._raw[self._begin[k] : self._end[k]].tobytes()
            if not text.strip(_SPACES):
                continue
            row = parse_object(text, exact=self._relation.has_decimals)
            if isinstance(row, str):
                bad.append(BadRow(k, row))
                continue
            self.names.update(row)
            found.append((k, row))
        return found, bad

    def _changes_of(
        self, dicts: Sequence[tuple[int, dict[str, Any]]], with_seq: bool
    ) -> tuple[ChangeBatch, list[BadRow]]:
        numbers = np.array([k for k, _ in dicts], np.int64)
        ops: list[Any] = [row.pop("_op", "insert") for _, row in dicts]
        seqs = [row.pop("_seq", None) for _, row in dicts]
        batch, bad = ChangeBatch.from_dicts(
            self._relation,
            [row for _, row in dicts],
            ops,
            seqs if with_seq else None,
            json=True,
        )
        bad = [BadRow(int(numbers[row]), reason) for row, reason in bad]
        return batch.renumbered(numbers), bad


_FITTING = {  # kinds of members that a column takes without doubt
    Type.BIGINT: (BIGINT,),
    Type.DOUBLE: (BIGINT, DOUBLE),
    Type.BOOLEAN: (FALSE, TRUE),
    Type.DATE: (TEXT,),
    Type.TIMESTAMP: (TEXT,),
}


def _whole(text: bytes) -> dict[str, Any]:
    """The object of a text that was read before."""
    row = parse_plain(text)
    if row is None:
        parsed = parse_object(text)
        row = parsed if isinstance(parsed, dict) else {}
    return {name: value for name, value in row.items() if name not in ("_op", "_seq")}


def _time_or_none(type: Type, text: str) -> Any:
    try:
        return read(type, text)
    except ValueError:
        return None


def merged(first: ChangeBatch, second: ChangeBatch) -> ChangeBatch:
    """Both batches of one relation as one, in order of `origin`."""
    if not len(second):
        return first
    origin = np.concatenate([first.origin, second.origin])
    order = np.argsort(origin, kind="stable")
    given = None
    if first.given is not None:
        given = {name: np.concatenate([mask, second.gave(name)])[order] for name, mask in first.given.items()}
    seq = None
    if first.seq is not None and second.seq is not None:
        seq = np.concatenate([first.seq, second.seq])[order]
    merge = _merged_events if isinstance(second.rows, SparseRows) else _merged_columns
    op, rows = np.concatenate([first.op, second.op])[order], merge(first.rows, second.rows, order)
    nested = {**first.nested}
    for name, events in second.nested.items():
        nested[name] = np.concatenate([nested.get(name, events[:0]), events])
    return ChangeBatch(first.relation, op, seq, rows, given, origin[order], nested)


def _merged_columns(first: Rows, second: Rows, order: Index) -> Rows:
    columns = []
    for name, vector in first.columns:
        (other,) = second.vectors(name)
        values, valid = (np.concatenate(both)[order] for both in _pairs(vector, other))
        columns.append((name, Vector(vector.type, values, valid)))
    return Rows(columns, len(order))


def _pairs(one: Vector, other: Vector) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    return [(one.values, other.values), (one.valid, other.valid)]


def _merged_events(first: Rows, second: Rows, order: Index) -> Rows:
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    numbers: dict[str, int] = {}
    parts = []
    for rows, base in ((first, 0), (second, len(first))):
        assert isinstance(rows, SparseRows)
        own = np.array([numbers.setdefault(name, len(numbers)) for name in rows.names], np.int32)
        parts += [p._replace(event=place[base + p.event], name=own[p.name]) for p in rows.parts]
    assert isinstance(first, SparseRows) and isinstance(second, SparseRows)
    source = EventSource.joined([first, second])
    return SparseRows(parts, tuple(numbers), len(order), None if source is None else source.take(order))
