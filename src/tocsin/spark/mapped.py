"""The filters over one stream as an index on disk, which every worker maps and none copies.

    <versions>/filters/<stream>/index/          segments and versions of `match.auto.Auto`
    <versions>/filters/<stream>/v000012.json    which of them holds version 12 of the subscriptions
    <versions>/filters/<stream>/3.ids.npy       the id of each slot of the index's version 3, and its digest

Whoever first needs a version makes its index from the nearest one before it: what went is taken out, what
came is added, and segments that stay are shared. Others wait for the lock, and find it. A process opens an
index in milliseconds; pages are read when a match touches them, once per host.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from tocsin.errors import BadRow
from tocsin.language.shape import plan
from tocsin.language.template import Parser
from tocsin.match._kernels.lists import scatter
from tocsin.match.index import Auto, Policy
from tocsin.model.change import ChangeBatch
from tocsin.model.columns import Index
from tocsin.model.schema import Catalog, Stream
from tocsin.predicate.compile import flatten
from tocsin.spark.sharded_match import Routes, Share
from tocsin.spark.versions.lots import Lot
from tocsin.spark.versions.parts import Chosen
from tocsin.spark.versions.pins import put
from tocsin.spark.versions.versions import Version, Versions
from tocsin.subscriptions.bulk import Load, load_predicates, load_template, load_texts

__all__ = ["StreamFilters", "mapped_filters", "stream_filters"]

_READ_ONLY = Policy(look=2**62)  # workers do not build segments anew: they would copy what they share
_NEVER = np.iinfo(np.int64)


@dataclass
class StreamFilters:
    """An index over the events of a stream, and who each slot is."""

    stream: Stream
    index: Auto
    ids: Index  # by slot
    digests: Any  # by slot; of a slot that is free, nothing
    times: Index | None = None  # by slot: valid from and to, in microseconds; None: all are always valid
    share: Share | None = None  # if it has only some of the filters
    routes: Routes | None = None  # then: which events it must see

    def read(self, events: Any) -> tuple[ChangeBatch, list[BadRow]]:
        """Events, from an Arrow table or an array of JSON texts; and those that are not valid."""
        if isinstance(events, pa.Table):
            return ChangeBatch.from_arrow(self.stream, events)
        return ChangeBatch.from_json(self.stream, ["insert"] * len(events), None, events)

    def match(self, events: Any, micros: int = 0) -> tuple[Index, Index, list[BadRow]]:
        """Where the subscriptions of each event begin, the subscriptions, and events that are not valid."""
        batch, bad = self.read(events)
        packed = self.index.match(batch.rows)
        if self.times is not None:
            begins, ends = self.times
            slot = packed >> 32
            packed = packed[(begins[slot] <= micros) & (micros < ends[slot])]
        found = np.empty(len(packed), np.int64)
        return scatter(packed, batch.origin, self.ids, len(events), found), found, bad

    def change(self, chosen: Chosen, catalog: Catalog) -> None:
        """Become the filters that are chosen: let others go, and take in what is not there."""
        used = np.flatnonzero(self.ids != FREE)
        at = chosen.find(self.ids[used])
        same = at >= 0
        if len(chosen):
            same &= chosen.digests[at] == self.digests[used]
        gone = used[~same]
        if len(gone):
            self.index.remove(gone)
            self.ids[gone] = FREE
        for lot in chosen.without(self.ids[used[same]]).lots():
            self._add(lot, catalog)

    def _add(self, lot: Lot, catalog: Catalog) -> None:
        load = _loaded(lot, self.stream, catalog)
        parts: list[tuple[Index, Any]] = [(ids, plans.first_filters) for ids, _, plans in load.batches]
        if load.single:
            single = flatten(plan(query, text=sql).filters[0] for _, _, sql, query in load.single)
            parts.append((np.array([id for id, _, _, _ in load.single], np.int64), single))
        order = np.argsort(lot.ids)
        for ids, filters in parts:
            if self.share is not None and self.routes is not None:
                filters = filters.flat()
                mine = self.routes.place(filters) == self.share.number
                ids, filters = ids[mine], filters.take(mine)
            rows = order[np.searchsorted(lot.ids[order], ids)]
            slots = np.arange(len(self.ids), len(self.ids) + len(ids))
            self.index.add(slots, filters)
            self.ids = np.concatenate([self.ids, ids])
            self.digests = np.concatenate([self.digests, lot.digests[rows]])
            self._add_times(lot, rows)

    def _add_times(self, lot: Lot, rows: Index) -> None:
        columns = ("valid_from", "valid_to")
        timed = lot.kind == "texts" and any(lot.table[name].null_count < len(lot) for name in columns)
        if self.times is None and not timed:
            return
        if self.times is None:
            before = len(self.ids) - len(rows)
            self.times = np.repeat([[_NEVER.min], [_NEVER.max]], before, axis=1)
        mine = np.repeat([[_NEVER.min], [_NEVER.max]], len(rows), axis=1)
        if timed:
            for i, name in enumerate(columns):
                micros = lot.table[name].cast(pa.int64()).take(pa.array(rows))
                mine[i] = micros.fill_null(int(mine[i, 0])).to_numpy()
        self.times = np.concatenate([self.times, mine], axis=1)


FREE = _NEVER.min
"""The id of a slot that nobody has: no id of a subscription is so low."""


def stream_filters(version: Version, stream: Stream, catalog: Catalog) -> StreamFilters:
    """The filters of a version over a stream, in memory."""
    made = _empty(stream, Auto())
    made.change(_chosen(version, stream), catalog)
    return made


def mapped_filters(
    versions: Versions, number: int, stream: Stream, catalog: Catalog, share: Share | None = None
) -> StreamFilters:
    """The same, or one shard of it, mapped from files that are made if they are not there."""
    name = quote(stream.name, safe="")
    if share is not None:
        name += f"+{share.number}of{share.of}"
    folder = versions.path / "filters" / name
    version = versions.load(number)
    found = _made(folder, number, version.uuid)
    if found is None:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / ".lock"):
            found = _made(folder, number, version.uuid)
            if found is None:
                found = _make(folder, versions, version, stream, catalog, share)
    return _open(folder, found, stream, _READ_ONLY, share)


def _chosen(version: Version, stream: Stream) -> Chosen:
    parts = [some for home, some in version.chosen.by_home().items() if home.tables == (stream.name,)]
    return Chosen(tuple(pair for some in parts for pair in some.parts))


def _made(folder: Path, number: int, uuid: str) -> int | None:
    """The index's version that holds a version of the subscriptions."""
    try:
        told = json.loads((folder / f"v{number:06d}.json").read_text())
    except FileNotFoundError:
        return None
    return int(told["index"]) if told["uuid"] == uuid else None


def _make(
    folder: Path,
    versions: Versions,
    version: Version,
    stream: Stream,
    catalog: Catalog,
    share: Share | None,
) -> int:
    base = _nearest(folder, versions, version.number)
    made = _empty(stream, Auto(), share) if base is None else _open(folder, base, stream, Policy(), share)
    if np.count_nonzero(made.ids == FREE) > len(made.ids) // 2:
        made = _empty(stream, Auto(), share)
    made.change(_chosen(version, stream), catalog)
    number = made.index.save(folder / "index")
    np.save(folder / f"{number}.ids.npy", made.ids)
    np.save(folder / f"{number}.digests.npy", made.digests)
    if made.times is not None:
        np.save(folder / f"{number}.times.npy", made.times)
    if made.routes is not None:
        put(folder / f"{number}.routes.json", json.dumps(made.routes.to_dict()))
    put(folder / f"v{version.number:06d}.json", json.dumps({"index": number, "uuid": version.uuid}))
    return number


def _nearest(folder: Path, versions: Versions, number: int) -> int | None:
    there = set(versions.numbers())
    known = sorted((int(file.stem[1:]) for file in folder.glob("v*.json")), reverse=True)
    for other in known:
        if other < number and other in there:
            found = _made(folder, other, versions.uuid(other))
            if found is not None:
                return found
    return None


def _open(folder: Path, number: int, stream: Stream, policy: Policy, share: Share | None) -> StreamFilters:
    def load(name: str) -> Any:
        return np.asarray(np.load(folder / f"{number}.{name}.npy", mmap_mode="c"))

    index = Auto.open(folder / "index", number, policy=policy)
    timed = (folder / f"{number}.times.npy").exists()
    times = load("times") if timed else None
    routes = None
    if share is not None:
        routes = Routes(**json.loads((folder / f"{number}.routes.json").read_text()))
    return StreamFilters(stream, index, load("ids"), load("digests"), times, share, routes)


def _empty(stream: Stream, index: Auto, share: Share | None = None) -> StreamFilters:
    routes = None if share is None else Routes(share.of)
    return StreamFilters(
        stream, index, np.empty(0, np.int64), np.empty(0, np.uint64), share=share, routes=routes
    )


def _loaded(lot: Lot, stream: Stream, catalog: Catalog) -> Load:
    table = lot.table.drop_columns(["subscriber"])
    if lot.kind == "template":
        return load_template(lot.about, table, catalog)
    if lot.kind == "predicates":
        return load_predicates(stream, table)
    return load_texts(table["sql"].to_pylist(), lot.ids.tolist(), None, Parser(catalog), 0)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def micros_of(time: datetime) -> int:
    """A time as subscriptions' validity is kept."""
    return int(time.timestamp() * 1_000_000)
