"""Effective changes of a table: the row before and the row after, and for whom of two receivers which half.

A table shard knows them from the deltas of `SELECT *`, and sends to each query shard the changes to apply: a
row that moves from one shard to another is deleted in one and inserted in the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tocsin.model.delta import Deltas

__all__ = ["EffectiveChanges", "numbered"]

_OPS = ["insert", "update", "delete"]


@dataclass(frozen=True)
class EffectiveChanges:
    """Effective changes of one table: the positions of the row before and after in `rows`, -1 for none."""

    rows: pa.Table
    seq: NDArray[np.int64]
    old: NDArray[np.int64]
    new: NDArray[np.int64]

    @classmethod
    def of(cls, deltas: Deltas, seqs: NDArray[np.int64]) -> EffectiveChanges:
        """From the deltas of `SELECT *`; a change has at most one of each sign."""
        position, change = np.unique(deltas.seq, return_inverse=True)
        old, new = np.full(len(position), -1, np.int64), np.full(len(position), -1, np.int64)
        index = np.arange(len(deltas))
        gone = deltas.sign < 0
        old[change[gone]], new[change[~gone]] = index[gone], index[~gone]
        parts, order = [], []
        for source in np.unique(deltas.source).tolist():
            here = np.flatnonzero(deltas.source == source)
            rows = deltas.sources[source].take(deltas.row[here])
            parts.append(pa.table({name: vector.arrow for name, vector in rows.columns}))
            order.append(here)
        table = pa.concat_tables(parts).take(pa.array(np.argsort(np.concatenate(order))))
        return cls(table, seqs[position], old, new)

    def part(
        self, old: NDArray[np.bool_], new: NDArray[np.bool_], split: NDArray[np.bool_] | None = None
    ) -> pa.Table:
        """The changes for a receiver that has the rows before where `old`, and gets those after where `new`.

        `split`, if given, becomes a column: the other half of the change goes to another shard.
        """
        chosen = np.flatnonzero(old | new)
        row = np.where(new, self.new, self.old)[chosen]
        op = np.where(old & new, 1, np.where(new, 0, 2))[chosen]
        changes = (
            self.rows.take(pa.array(row))
            .append_column("_op", pa.array(_OPS).take(pa.array(op)))
            .append_column("_seq", pa.array(self.seq[chosen]))
        )
        return changes if split is None else changes.append_column("_split", pa.array(split[chosen]))


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
