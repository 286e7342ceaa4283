"""Changes of whole rows, as table shards tell them to query shards: who had a row, and who gets it.

A change of a join key is a delete in one shard and an insert in another; what neither the shard of
the row before nor that of the row after is concerned with, it never hears of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tocsin.model.delta import Deltas
from tocsin.spark.hashing import buckets

__all__ = ["Moved", "numbered", "places", "with_op"]


_OPS = ["insert", "update", "delete"]


@dataclass(frozen=True)
class Moved:
    """Changes of one table that really changed something: the row before and after, -1 for none."""

    rows: pa.Table
    seq: NDArray[np.int64]
    old: NDArray[np.int64]
    new: NDArray[np.int64]

    @classmethod
    def of(cls, deltas: Deltas, seqs: NDArray[np.int64]) -> Moved:
        """From the deltas of `SELECT *`, of which a change has at most one of each sign."""
        position, change = np.unique(deltas.seq, return_inverse=True)
        old, new = np.full(len(position), -1, np.int64), np.full(len(position), -1, np.int64)
        index = np.arange(len(deltas))
        gone = deltas.sign < 0
        old[change[gone]], new[change[~gone]] = index[gone], index[~gone]
        return cls(_columns(deltas), seqs[position], old, new)

    def whole(self) -> pa.Table:
        """All of it, as changes."""
        return self.part(self.old >= 0, self.new >= 0)

    def part(
        self, old: NDArray[np.bool_], new: NDArray[np.bool_], split: NDArray[np.bool_] | None = None
    ) -> pa.Table:
        """What someone must be told who had the rows before where `old`, and gets those after where `new`.

        `split`, if given, goes along as a column: the other half of the change is somebody else's.
        """
        told = np.flatnonzero(old | new)
        row = np.where(new, self.new, self.old)[told]
        op = np.where(old & new, 1, np.where(new, 0, 2))[told]
        changes = (
            self.rows.take(pa.array(row))
            .append_column("_op", pa.array(_OPS).take(pa.array(op)))
            .append_column("_seq", pa.array(self.seq[told]))
        )
        return changes if split is None else changes.append_column("_split", pa.array(split[told]))

    def buckets(self, key: Sequence[str], count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The shard of the row before and of the row after, -1 for none."""
        place = np.append(places(self.rows, key, count), -1)  # index -1 finds the appended -1
        return place[self.old], place[self.new]


def with_op(table: pa.Table) -> pa.Table:
    """The rows of a snapshot are inserts; those of a batch say what they are."""
    if "_op" in table.column_names:
        return table
    return table.append_column("_op", pa.array(["insert"] * len(table), pa.string()))


def places(rows: pa.Table, key: Sequence[str], count: int) -> NDArray[np.int64]:
    return buckets([rows[name] for name in key], count) if key else np.zeros(len(rows), np.int64)


def numbered(batches: dict[str, pa.Table], first: int) -> tuple[dict[str, pa.Table], NDArray[np.int64]]:
    """The batches in order of seq, numbered by position among all of them; and the seq of each position."""
    seqs = np.concatenate([table["_seq"].to_numpy() for table in batches.values()])
    order = np.argsort(seqs, kind="stable")
    position = np.empty(len(seqs), np.int64)
    position[order] = np.arange(len(seqs))
    out, start = {}, 0
    for name, table in batches.items():
        here = position[start : start + len(table)]
        own = np.argsort(here)
        body = table.drop_columns(["_seq"]).take(pa.array(own))
        out[name] = body.append_column("_seq", pa.array(first + here[own]))
        start += len(table)
    return out, seqs[order]


def _columns(deltas: Deltas) -> pa.Table:
    """The rows of deltas as an Arrow table, one per delta. They must have the same columns."""
    parts, places = [], []
    for source in np.unique(deltas.source).tolist():
        where = np.flatnonzero(deltas.source == source)
        rows = deltas.sources[source].take(deltas.row[where])
        parts.append(pa.table({name: vector.arrow for name, vector in rows.columns}))
        places.append(where)
    return pa.concat_tables(parts).take(pa.array(np.argsort(np.concatenate(places))))
