"""Changes: inserts, updates and deletes of rows, or events of a stream, in columnar batches.

A `ChangeBatch` is checked for everything that can be known without the table: known columns,
right types, a whole key without NULL or NaN, a known operation. Rows that fail are left out
and reported as `BadRow`s; the caller decides whether they fail the batch (`Engine.apply`) or go
to a dead-letter output (a pipeline).

An update sets the columns it gives: all columns of an Arrow batch, the keys present of a dict
or JSON object. `given` says so cell by cell where rows differ.

>>> from tocsin.model.schema import Field, Table, Type
>>> stocks = Table("stocks", (Field("symbol", Type.STRING), Field("per", Type.DOUBLE)), key=("symbol",))
>>> batch, bad = ChangeBatch.from_dicts(stocks, [{"symbol": "A", "per": 1}, {"per": "x"}])
>>> batch.rows.to_dicts(), bad
([{'symbol': 'A', 'per': 1.0}], [BadRow(row=1, reason="column per: 'x' is not a DOUBLE")])
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tocsin.errors import BadRow, ChangeError
from tocsin.model.arrow import columns_of, convert, events_of, flat, is_text
from tocsin.model.buffers import to_arrow, to_numpy
from tocsin.model.columns import Index, Mask, Rows, SparseRows, Vector
from tocsin.model.json_rows import json_columns, json_given
from tocsin.model.jsonlines.parse import JsonRow, parse_object, parse_plain
from tocsin.model.schema import Stream, Table, Type, read

__all__ = ["DELETE", "INSERT", "OPS", "UPDATE", "UPSERT", "ChangeBatch", "Operation", "takes_op"]


class Operation(IntEnum):
    """What a change does, in arrays; `_op` has the names in lower case."""

    INSERT = 0
    UPDATE = 1
    DELETE = 2
    UPSERT = 3


INSERT, UPDATE, DELETE, UPSERT = Operation
OPS = {operation.name.lower(): operation for operation in Operation}


@dataclass(frozen=True)
class ChangeBatch:
    """Changes of one relation, in order. `origin` is each row's number in the input."""

    relation: Table | Stream
    op: NDArray[np.uint8]
    seq: Index | None  # None: to be assigned
    rows: Rows
    given: Mapping[str, Mask] | None  # None: every column of `rows` is given in every row
    origin: Index
    nested: Mapping[str, Index] = field(default_factory=dict)  # attributes left out: origins of their events

    def __len__(self) -> int:
        return len(self.op)

    def gave(self, name: str) -> Mask:
        """In which rows the column was given."""
        if self.given is not None:
            return self.given[name]
        return np.full(len(self), name in self.rows.names)

    @classmethod
    def from_dicts(
        cls,
        relation: Table | Stream,
        rows: Sequence[Mapping[str, Any]],
        ops: Sequence[str] | str = "insert",
        seqs: Sequence[Any] | None = None,
        *,
        json: bool = False,
    ) -> tuple[ChangeBatch, list[BadRow]]:
        """From Python rows. `json`: values come from JSON text, so "NaN" may stand for a double."""
        ops = [ops] * len(rows) if isinstance(ops, str) else list(ops)
        bad: dict[int, str] = {}
        for i, (_, op) in enumerate(zip(rows, ops, strict=True)):
            try:
                _check_op(relation, op)
            except ValueError as error:
                bad[i] = str(error)
        given: dict[str, Mask] | None = None
        nested: dict[str, list[int]] = {}
        body: Rows
        if relation.open:
            body = SparseRows.read(rows, bad, nested)
        else:
            good = []
            for i, row in enumerate(rows):
                try:
                    if i not in bad:
                        good.append(_typed_row(relation, row, json))
                except ValueError as error:
                    bad[i] = str(error)
            columns = [
                (f.name, Vector.of(f.type, [row.get(f.name) for row in good])) for f in relation.fields
            ]
            body = Rows(columns, len(good))
            given = {f.name: np.array([f.name in row for row in good], np.bool_) for f in relation.fields}
        origin = [i for i in range(len(rows)) if i not in bad]
        codes = np.array([OPS[ops[i]] for i in origin], np.uint8)
        left_out = {name: np.array(events, np.int64) for name, events in nested.items()}
        batch = cls(relation, codes, None, body, given, np.array(origin, np.int64), left_out)
        return batch._with_seqs(seqs, [BadRow(i, bad[i]) for i in sorted(bad)])

    @classmethod
    def from_json(
        cls,
        relation: Table | Stream,
        ops: Sequence[str],
        seqs: Sequence[Any] | None,
        rows: Sequence[str | None] | pa.Array,
    ) -> tuple[ChangeBatch, list[BadRow]]:
        """From one JSON object per row: read by Arrow as columns, or one by one if a row may be bad."""
        if not relation.open:
            texts = rows if isinstance(rows, pa.Array) else to_arrow(rows, pa.string())
            table = json_columns(relation.fields, texts)
            if table is not None:
                plain, bad = cls._read_arrow(relation, table.append_column("_op", to_arrow(ops, pa.string())))
                if not bad:
                    return replace(plain, given=json_given(table, texts))._with_seqs(seqs, [])
        parsed, origin, bad = [], [], []
        row: JsonRow | None
        for i, text in enumerate(rows.to_pylist() if isinstance(rows, pa.Array) else rows):
            row = None if text is None or relation.has_decimals else parse_plain(text)
            if row is None:
                row = parse_object("null" if text is None else text, exact=relation.has_decimals)
            if isinstance(row, str):
                bad.append(BadRow(i, row))
            else:
                parsed.append(row)
                origin.append(i)
        chosen = None if seqs is None else [seqs[i] for i in origin]
        batch, worse = cls.from_dicts(relation, parsed, [ops[i] for i in origin], chosen, json=True)
        bad.extend(BadRow(origin[index], reason) for index, reason in worse)
        return batch.renumbered(np.array(origin, np.int64)), sorted(bad)

    @classmethod
    def from_arrow(cls, relation: Table | Stream, data: Any) -> tuple[ChangeBatch, list[BadRow]]:
        """From a pyarrow Table or RecordBatch; `_op` defaults to insert, `_seq` may be absent."""
        if isinstance(data, pa.RecordBatch):
            data = pa.Table.from_batches([data])
        names = data.column_names
        if len(set(names)) < len(names):
            twice = next(name for i, name in enumerate(names) if name in names[:i])
            raise ChangeError(f"column {twice} is given twice")
        return cls.from_columns(relation, data)

    @classmethod
    def from_columns(cls, relation: Table | Stream, data: Any) -> tuple[ChangeBatch, list[BadRow]]:
        """The same for a Table in which an attribute of an open stream may have several columns, by type."""
        try:
            return cls._read_arrow(relation, data)
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise ChangeError(f"the batch cannot be read: {error}") from None

    @classmethod
    def _read_arrow(cls, relation: Table | Stream, data: Any) -> tuple[ChangeBatch, list[BadRow]]:
        special = [name for name in ("_op", "_seq") if name in data.column_names]
        body = data.drop_columns(special)
        nested: Mapping[str, Index] = {}
        if relation.open:
            rows, bad, nested = events_of(body)
        else:
            rows, bad = columns_of(relation, body)
        op, wrong = _ops_of(relation, data)
        seq, missing = _seqs_of(data)
        faults: dict[int, str] = {}  # the first reason of a row is reported
        for i, reason in [
            *bad,
            *wrong,
            *(bad for name in relation.key for bad in _bad_keys(name, rows)),
            *missing,
        ]:
            faults.setdefault(i, reason)
        batch = cls(relation, op, seq, rows, None, np.arange(data.num_rows), nested)
        if not faults:
            return batch, []
        kept = batch.take(np.setdiff1d(batch.origin, np.array(list(faults), np.int64)))
        return kept, [BadRow(i, reason) for i, reason in sorted(faults.items())]

    def or_raise(self, bad: Sequence[BadRow]) -> ChangeBatch:
        """The batch itself; raises if a row was bad."""
        if bad:
            raise ChangeError(bad[0].reason, bad[0].row)
        return self

    def take(self, index: Index) -> ChangeBatch:
        """Some of the rows."""
        if len(index) == len(self):
            return self
        given = None if self.given is None else {name: mask[index] for name, mask in self.given.items()}
        seq = None if self.seq is None else self.seq[index]
        return ChangeBatch(
            self.relation, self.op[index], seq, self.rows.take(index), given, self.origin[index], self.nested
        )

    def renumbered(self, number: Index) -> ChangeBatch:
        """The same changes, whose origin i is number[i] in a larger input."""
        nested = {name: number[events] for name, events in self.nested.items()}
        return replace(self, origin=number[self.origin], nested=nested)

    def without_nested(self, wanted: Collection[str]) -> tuple[ChangeBatch, list[BadRow]]:
        """Reject rows in which a wanted attribute has a value inside which there are others."""
        bad: dict[int, str] = {}
        for name in sorted(self.nested.keys() & set(wanted)):
            for i in self.origin[np.isin(self.origin, self.nested[name])].tolist():
                reason = "a nested value is not a number, text, boolean, date or timestamp"
                bad.setdefault(i, f"attribute {name}: {reason}")
        kept = np.flatnonzero(~np.isin(self.origin, np.array(list(bad), np.int64)))
        return self.take(kept), [BadRow(i, reason) for i, reason in sorted(bad.items())]

    def with_seq(self, seq: Index) -> ChangeBatch:
        """The same changes under these sequence numbers."""
        return replace(self, seq=seq)

    def _with_seqs(self, seqs: Sequence[Any] | None, bad: list[BadRow]) -> tuple[ChangeBatch, list[BadRow]]:
        """Attach sequence numbers (one per input row, or per good row); rows with a bad one are left out."""
        if seqs is None:
            return self, bad
        own = seqs if len(seqs) == len(self) else [seqs[i] for i in self.origin.tolist()]
        found: list[int] = []
        keep: list[int] = []
        for i, seq in enumerate(own):
            try:
                number = read(Type.BIGINT, seq)
                fact = "seq is missing"
            except ValueError as error:
                number, fact = None, f"seq {error}"
            if number is None:
                bad.append(BadRow(int(self.origin[i]), fact))
            else:
                found.append(number)
                keep.append(i)
        return self.take(np.array(keep, np.int64)).with_seq(np.array(found, np.int64)), sorted(bad)


def takes_op(relation: Table | Stream, op: str) -> bool:
    """Whether a relation has that operation: a stream has only inserts."""
    return op in OPS and (isinstance(relation, Table) or op == "insert")


def _check_op(relation: Table | Stream, op: Any) -> None:
    if not isinstance(op, str) or op not in OPS:
        raise ValueError(f"unknown operation {op!r}: one of {', '.join(OPS)}")
    if isinstance(relation, Stream) and op != "insert":
        raise ValueError(f"{relation.name} is a stream: its events are inserted, never changed ({op!r})")


def _ops_of(relation: Table | Stream, data: Any) -> tuple[NDArray[np.uint8], list[BadRow]]:
    """The operation of each row of an Arrow batch, each distinct one checked once."""
    if "_op" not in data.column_names:
        return np.full(data.num_rows, INSERT, np.uint8), []
    column = flat(data["_op"])
    if not is_text(column.type) and not pa.types.is_null(column.type):
        raise ChangeError(f"column _op has type {column.type}, which is not a STRING")
    encoded = column.dictionary_encode(null_encoding="encode")
    which = to_numpy(encoded.indices)
    bad: list[BadRow] = []
    codes = np.zeros(max(1, len(encoded.dictionary)), np.uint8)
    for n, op in enumerate(encoded.dictionary.to_pylist()):
        try:
            _check_op(relation, op)
            codes[n] = OPS[op]
        except ValueError as error:
            bad.extend(BadRow(int(i), str(error)) for i in np.flatnonzero(which == n))
    return codes[which], bad


def _seqs_of(data: Any) -> tuple[Index | None, list[BadRow]]:
    """The sequence number of each row of an Arrow batch, if it has them."""
    if "_seq" not in data.column_names:
        return None, []
    vector, bad = convert("_seq", Type.BIGINT, flat(data["_seq"]))
    absent = [BadRow(int(i), "seq is missing") for i in np.flatnonzero(~vector.valid)]
    return vector.values, bad + absent


def _typed_row(relation: Table | Stream, row: Mapping[str, Any], json: bool) -> dict[str, Any]:
    """The row by declared names and types, with a whole key."""
    out: dict[str, Any] = {}
    for name, value in row.items():
        field = relation.find(name) if isinstance(name, str) else None
        if field is None:
            raise ValueError(f"{relation.name} has no column {name!r}")
        if field.name in out:
            raise ValueError(f"column {field.name} is given twice")
        try:
            out[field.name] = read(field.type, value, json=json)
        except ValueError as error:
            raise ValueError(f"column {field.name}: {error}") from None
    for name in relation.key:
        value = out.get(name)
        if value is None:
            raise ValueError(f"key column {name} is missing or NULL")
        if value != value:
            raise ValueError(f"key column {name} is NaN")
    return out


def _bad_keys(name: str, rows: Rows) -> list[BadRow]:
    vectors = rows.vectors(name)
    absent = ~vectors[0].valid if vectors else np.ones(len(rows), np.bool_)
    bad = [BadRow(int(i), f"key column {name} is missing or NULL") for i in np.flatnonzero(absent)]
    if vectors and vectors[0].type is Type.DOUBLE:
        nan = np.flatnonzero(np.isnan(vectors[0].values))
        bad.extend(BadRow(int(i), f"key column {name} is NaN") for i in nan)
    return bad
