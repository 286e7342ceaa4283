"""What deferred subscriptions have not delivered, as Arrow tables: for a saved engine.

    subscription  sign  row (a struct)      sign 0: a row of the answer as delivered

One table for all rows of the same columns, and before them one without rows, whose metadata have what is no
rows. Answers that a group computes are saved as delivered, the others as the net deltas that wait.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tocsin.model.buffers import to_numpy
from tocsin.model.columns import Index, Rows, Vector
from tocsin.model.delta import Deltas
from tocsin.model.schema import Type

__all__ = ["SavedDeltas", "read_undelivered", "undelivered_tables"]

_NUMBERS = b"tocsin"
_TYPES = {type.arrow: type for type in Type}  # ... but DECIMAL, of which there is one for each size


class SavedDeltas(NamedTuple):
    """What a saved engine must remember of deferred subscriptions, by slot (or, in files, by id)."""

    net: Deltas
    delivered: Mapping[int, Rows | None]  # of those whose answer the group computes; None: no rows
    refreshed: Mapping[
        int, tuple[int, int]
    ]  # of those with a condition: microseconds since 1970, changes since
    records: Mapping[int, Mapping[str, Any]]  # of each group, by one of its members: times of refreshes

    def renamed(self, names: Callable[[Index], Index]) -> SavedDeltas:
        """With ids for slots, or the reverse."""

        def of(keys: Mapping[int, Any]) -> list[int]:
            return names(np.array(list(keys), np.int64)).tolist()

        delivered = dict(zip(of(self.delivered), self.delivered.values(), strict=True))
        refreshed = dict(zip(of(self.refreshed), self.refreshed.values(), strict=True))
        records = dict(zip(of(self.records), self.records.values(), strict=True))
        net = replace(self.net, subscription=names(self.net.subscription))
        return SavedDeltas(net, delivered, refreshed, records)

    def numbers(self) -> dict[str, Any]:
        """What is no rows, for JSON."""
        return {
            "derived": list(self.delivered),
            "refreshed": {str(key): when for key, when in self.refreshed.items()},
            "records": {str(key): record for key, record in self.records.items()},
        }


def undelivered_tables(saved: SavedDeltas) -> dict[str, Any]:
    """All of it, by name; what is no rows is in the metadata of the first table."""
    groups: dict[Any, list[tuple[Index, Any, Rows]]] = {}
    for own, sign, rows in _parts(saved):
        alike = tuple((name, vector.type) for name, vector in rows.columns)
        groups.setdefault(alike, []).append((own, sign, rows))
    found = [pa.table({}).replace_schema_metadata({_NUMBERS: json.dumps(saved.numbers())})]
    found += [_table(parts) for parts in groups.values()]
    return {f"{number:03}": table for number, table in enumerate(found)}


def _parts(saved: SavedDeltas) -> Iterator[tuple[Index, Any, Rows]]:
    net = saved.net
    for number, rows in enumerate(net.sources):
        mine = np.flatnonzero(net.source == number)
        if len(mine):
            yield net.subscription[mine], net.sign[mine], rows.take(net.row[mine])
    for key, whole in saved.delivered.items():
        if whole is not None and len(whole):
            yield np.full(len(whole), key, np.int64), np.zeros(len(whole), np.int8), whole


def _table(parts: Sequence[tuple[Index, Any, Rows]]) -> Any:
    rows = Rows.concat([part[2] for part in parts])
    struct = pa.StructArray.from_arrays(
        [vector.arrow for _, vector in rows.columns], names=[name for name, _ in rows.columns]
    )
    return pa.table(
        {
            "subscription": np.concatenate([part[0] for part in parts]),
            "sign": np.concatenate([part[1] for part in parts]),
            "row": struct,
        }
    )


def read_undelivered(tables: Mapping[str, Any]) -> SavedDeltas:
    """The reverse of `undelivered_tables`."""
    first, *others = (tables[name] for name in sorted(tables, key=int))
    numbers = json.loads(first.schema.metadata[_NUMBERS])
    net: list[Deltas] = []
    delivered: dict[int, Rows | None] = dict.fromkeys(numbers["derived"])
    for table in others:
        table = table.combine_chunks()
        own, sign = (np.asarray(to_numpy(table[name].combine_chunks())) for name in ("subscription", "sign"))
        rows = _rows(table["row"].combine_chunks())
        waits = np.flatnonzero(sign)
        net.append(Deltas.of(np.zeros(len(waits), np.int64), own[waits], sign[waits], rows, waits))
        for key in np.unique(own[sign == 0]).tolist():
            delivered[key] = rows.take(np.flatnonzero((own == key) & (sign == 0)))
    refreshed, records = (
        {int(key): value for key, value in numbers[name].items()} for name in ("refreshed", "records")
    )
    return SavedDeltas(Deltas.concat(net), delivered, refreshed, records)


def _type_of(arrow: Any) -> Type:
    if pa.types.is_decimal(arrow):
        return Type(f"DECIMAL({arrow.precision},{arrow.scale})")
    return _TYPES[arrow]


def _rows(struct: Any) -> Rows:
    columns = [
        (field.name, Vector.from_arrow(_type_of(field.type), column))
        for field, column in zip(struct.type, struct.flatten(), strict=True)
    ]
    return Rows(columns, len(struct))
