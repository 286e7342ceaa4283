"""Parts: lots of subscriptions as files that never change, and rows chosen from them.

A part is an Arrow file that is mapped, not read. Beside the columns of its lot it has the digest of every row
and the number of its home (`homes.py`); kind, template and homes are in the file's metadata.

A version of the subscriptions is a choice of rows from some parts: what was removed stays in its file until
the parts are written anew.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc
from numpy.typing import NDArray

from tocsin.errors import SubscriptionError
from tocsin.model.columns import Index
from tocsin.spark.hashing import buckets
from tocsin.spark.versions.join_key import Home, home_of
from tocsin.spark.versions.lots import Lot, subscribe

if TYPE_CHECKING:
    from tocsin.engine import Engine

__all__ = ["Chosen", "Part", "check", "load_part", "merged", "write_part"]

_OWN = ("_digest", "_home")


@dataclass(frozen=True, eq=False)
class Part:
    """A lot, what each row means, and where it is answered."""

    name: str  # of the file; empty if there is none yet
    lot: Lot
    digests: NDArray[np.uint64]
    homes: tuple[Home, ...]
    home: NDArray[np.int16]  # by row

    def __len__(self) -> int:
        return len(self.lot)

    @cached_property
    def _buckets(self) -> dict[int, Index]:
        return {}

    def buckets(self, count: int) -> Index:
        """Which of `count` shards has each row, if it goes by subscription."""
        if count not in self._buckets:
            self._buckets[count] = buckets([pa.array(self.lot.ids)], count)
        return self._buckets[count]


@dataclass(frozen=True, eq=False)
class Chosen:
    """Rows of parts: a set of subscriptions."""

    parts: tuple[tuple[Part, Index], ...] = ()

    def __len__(self) -> int:
        return sum(len(rows) for _, rows in self.parts)

    @classmethod
    def all_of(cls, parts: Iterable[Part]) -> Chosen:
        return cls(tuple((part, np.arange(len(part))) for part in parts))

    @cached_property
    def ids(self) -> Index:
        """The ids, part by part."""
        found = [part.lot.ids[rows] for part, rows in self.parts]
        return np.concatenate(found) if found else np.empty(0, np.int64)

    @cached_property
    def digests(self) -> NDArray[np.uint64]:
        """What they mean, in the order of `ids`."""
        found = [part.digests[rows] for part, rows in self.parts]
        return np.concatenate(found) if found else np.empty(0, np.uint64)

    @cached_property
    def _order(self) -> Index:
        return np.argsort(self.ids, kind="stable")

    def find(self, ids: Index) -> Index:
        """The place of each id in `ids`, -1 if it is not there."""
        if not len(self):
            return np.full(len(ids), -1, np.int64)
        ordered = self.ids[self._order]
        at = np.minimum(np.searchsorted(ordered, ids), len(ordered) - 1)
        return np.where(ordered[at] == ids, self._order[at], -1)

    def take(self, keep: NDArray[np.bool_]) -> Chosen:
        """Those where `keep`, in the order of `ids`."""
        out, start = [], 0
        for part, rows in self.parts:
            mine = rows[keep[start : start + len(rows)]]
            start += len(rows)
            if len(mine):
                out.append((part, mine))
        return Chosen(tuple(out))

    def without(self, ids: Index) -> Chosen:
        return self.take(~np.isin(self.ids, ids)) if len(ids) else self

    def only(self, ids: Index) -> Chosen:
        return self.take(np.isin(self.ids, ids))

    def same_as(self, other: Chosen) -> NDArray[np.bool_]:
        """Which of these are there with the same meaning, in the order of `ids`."""
        at = other.find(self.ids)
        return (
            (at >= 0) & (other.digests[at] == self.digests) if len(other) else np.zeros(len(self), np.bool_)
        )

    def using(self, tables: set[str]) -> NDArray[np.bool_]:
        """Which of these are about one of the tables, in the order of `ids`."""
        found = [
            np.array([bool(tables.intersection(home.tables)) for home in part.homes], np.bool_)[
                part.home[rows]
            ]
            for part, rows in self.parts
        ]
        return np.concatenate(found) if found else np.zeros(0, np.bool_)

    def by_home(self) -> dict[Home, Chosen]:
        """The same, home by home."""
        found: dict[Home, list[tuple[Part, Index]]] = {}
        for part, rows in self.parts:
            if len(part.homes) == 1:
                found.setdefault(part.homes[0], []).append((part, rows))
                continue
            codes = part.home[rows]
            for code in np.unique(codes).tolist():
                found.setdefault(part.homes[code], []).append((part, rows[codes == code]))
        return {home: Chosen(tuple(some)) for home, some in found.items()}

    def by_bucket(self, count: int) -> dict[int, Chosen]:
        """The same, by the shard that an id belongs to."""
        found: dict[int, list[tuple[Part, Index]]] = {}
        for part, rows in self.parts:
            codes = part.buckets(count)[rows]
            for code in np.unique(codes).tolist():
                found.setdefault(code, []).append((part, rows[codes == code]))
        return {code: Chosen(tuple(some)) for code, some in found.items()}

    def lots(self) -> list[Lot]:
        """The rows as lots."""
        return [
            part.lot if len(rows) == len(part) else part.lot.take(rows)
            for part, rows in self.parts
            if len(rows)
        ]

    def subscribers(self) -> pa.ChunkedArray | None:
        """Whose they are, in the order of `ids`; None if nobody is named."""
        columns = [part.lot.table["subscriber"].take(pa.array(rows)) for part, rows in self.parts]
        chunks = [chunk for column in columns for chunk in column.chunks]
        return pa.chunked_array(chunks) if any(c.null_count < len(c) for c in chunks) else None


def merged(both: Sequence[Chosen]) -> Chosen:
    """Several choices as one."""
    return Chosen(tuple(pair for one in both for pair in one.parts))


def check(ddl: str, lots: Sequence[Lot]) -> tuple[Engine, list[Part]]:
    """Lots as parts that are not written yet; raises if one is not a subscription to what `ddl` defines."""
    from tocsin.engine import Engine

    engine = Engine(retain=False)
    engine.execute(ddl)
    for lot in lots:
        _refuse_twice(lot.ids)
        try:
            subscribe(engine, lot)
        except SubscriptionError as error:
            if lot.kind == "texts" and error.rows:
                engine.subscribe(lot.table["sql"][error.rows[0].row].as_py())  # says more about it
            raise
    homes: dict[Home, int] = {}
    ids, codes = [], []
    for shape, query, some in engine.queries():
        ids.append(some)
        codes.append(np.full(len(some), homes.setdefault(home_of(shape, query), len(homes)), np.int64))
    all_ids = np.concatenate([*ids, np.empty(0, np.int64)])
    order = np.argsort(all_ids)
    ordered, code = all_ids[order], np.concatenate([*codes, np.empty(0, np.int64)])[order]
    known = list(homes)
    parts = []
    for lot in lots:
        mine, home = np.unique(code[np.searchsorted(ordered, lot.ids)], return_inverse=True)
        own = tuple(known[n] for n in mine.tolist())
        parts.append(Part("", lot, lot.digests, own, home.astype(np.int16)))
    return engine, parts


def write_part(folder: Path, part: Part) -> str:
    """Write a part, whole or not at all; returns the name of its file."""
    folder.mkdir(parents=True, exist_ok=True)
    name = uuid4().hex
    facts = {"kind": part.lot.kind, "about": part.lot.about, "homes": json.dumps(part.homes)}
    table = part.lot.table.append_column("_digest", pa.array(part.digests)).append_column(
        "_home", pa.array(part.home, pa.int16())
    )
    table = table.replace_schema_metadata(facts)
    aside = folder / f".{name}"
    with pa.OSFile(str(aside), "wb") as file, ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    os.rename(aside, folder / f"{name}.arrow")
    return name


@lru_cache(maxsize=512)
def load_part(folder: str, name: str) -> Part:
    """A part, mapped; once per process."""
    with pa.memory_map(f"{folder}/{name}.arrow") as source:
        table: Any = ipc.open_file(source).read_all()
    facts = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
    lot = Lot(facts["kind"], facts["about"], table.drop_columns(list(_OWN)).replace_schema_metadata(None))
    homes = tuple(map(Home.of, json.loads(facts["homes"])))
    return Part(name, lot, table["_digest"].to_numpy(), homes, table["_home"].to_numpy())


def _refuse_twice(ids: Index) -> None:
    number, count = np.unique(ids, return_counts=True)
    if len(number) < len(ids):
        raise SubscriptionError(f"subscription {number[count > 1][0]} is there {count.max()} times")
