"""Versions of the subscriptions in a store. A version never changes; another set is another version.

    <place>/parts/<name>.arrow        block files (`subscription_sets.py`), mapped, and shared by versions
    <place>/parts/<name>.gone.npy     the removed rows of a block file, in one version
    <place>/v000001/manifest.json     definitions, block files, a random uuid, consumed positions of change
                                      logs
    <place>/log/v000001.json          announces the version to Spark, which reads this folder as a stream

The manifest is written last, and only if there is none of its number, so a version exists whole or not at
all; of two writers the slower one takes the next number. Caches of anything derived from a version use its
uuid as their key, because someone may remove the versions and start again at version 1. A batch's pin
(`batch.py`) says which version the batch runs on.

>>> import tempfile
>>> versions = Versions(tempfile.mkdtemp())
>>> versions.publish("CREATE STREAM s (a BIGINT)", [(7, "SELECT * FROM s WHERE a > 1")])
1
>>> versions.change(add=[(8, "SELECT * FROM s")], remove=[7])
2
>>> versions.load(2).subscriptions.ids.tolist()
[8]
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc

from tocsin.errors import SubscriptionError, TocsinError
from tocsin.language.shape import Shape
from tocsin.model.columns import Index
from tocsin.spark.storage.store import Store, open_store
from tocsin.spark.versions.blocks import SCHEMA, BlockKind, SubscriptionBlock, SubscriptionRow, blocks_of
from tocsin.spark.versions.stretches import ENOUGH, RangeColumn, RowRanges, columns_in, cuts_of
from tocsin.spark.versions.subscription_sets import (
    BlockFile,
    SubscriptionSet,
    check,
    load_block_file,
    write_block_file,
)

__all__ = ["Version", "Versions", "draft"]

FORMAT = (
    4  # 3 had no ranges of subscriptions, 2 had the removed rows beside the manifest, 1 had one file of texts
)
MAX_FILES = 48  # block files of a version; above, they are compacted
LOGGED = 200  # versions that the log announces; a batch needs none but the newest
GRACE = 3600.0  # seconds that a block file has until a version names it, where writers cannot lock
_NOBODY: Index = np.empty(0, np.int64)


@dataclass(frozen=True)
class Version:
    """One set of subscriptions and the definitions they are written against."""

    number: int
    ddl: str
    subscriptions: SubscriptionSet
    uuid: str = ""  # tells it from an earlier version of the same number in a directory that was removed
    consumed: Mapping[str, Any] = field(default_factory=dict)  # the position reached in each change log
    asked: Mapping[int, int] = field(default_factory=dict)  # by id, the version that asked for a refresh
    cuts: Mapping[RangeColumn, Sequence[int]] = field(default_factory=dict)  # where stretches begin

    def rows(self) -> list[SubscriptionRow]:
        """All subscriptions as texts, in order of id: for people and tests."""
        found = (
            SubscriptionRow(s.id, s.sql, s.subscriber, s.valid_from, s.valid_to)
            for s in check(self.ddl, self.subscriptions.blocks())[0].subscriptions()
        )
        return sorted(found, key=lambda row: row.id)

    @cached_property
    def table(self) -> pa.Table:
        """The subscriptions that were given as texts, in order of id."""
        blocks = self.subscriptions.blocks()
        texts = [block.table.cast(SCHEMA) for block in blocks if block.kind == BlockKind.TEXTS]
        return pa.concat_tables([SCHEMA.empty_table(), *texts]).combine_chunks().sort_by("id")


NO_VERSION = Version(0, "", SubscriptionSet())


def draft(ddl: str, subscriptions: Any) -> Version:
    """A checked version that is not written to disk."""
    return Version(0, ddl, SubscriptionSet.all_of(check(ddl, blocks_of(subscriptions))[1]))


class Versions:
    """The versions in one place. Safe for several writers and any number of readers.

    `shares`: of a join of streams, by which its budget is divided; by default as `layout.json` says.
    """

    def __init__(self, place: str | Path | Store, shares: int | None = None) -> None:
        self.store = open_store(place)
        self._shares = shares

    @property
    def path(self) -> Path:
        """The folder, if they are in one."""
        return self.store.path

    @property
    def shares(self) -> int:
        """How many shards divide the budget of a join of streams."""
        if self._shares is None:
            self._shares = 1
            if layout := self.store.parent.find("layout.json"):
                self._shares = int(json.loads(layout)["joins"])
        return self._shares

    @property
    def log(self) -> Store:
        """Small JSON objects, one for each of the last versions, for Spark's file source."""
        return self.store / "log"

    def numbers(self) -> list[int]:
        """The numbers of all versions, in order."""
        names = self.store.folders()
        return sorted(int(name[1:]) for name in names if name[0] == "v" and name[1:].isdigit())

    def latest(self) -> int | None:
        numbers = self.numbers()
        return numbers[-1] if numbers else None

    def newest(self) -> Version:
        """The newest version; an empty one with number 0 if there is none."""
        number = self.latest()
        return NO_VERSION if number is None else self.load(number)

    def load(self, number: int) -> Version:
        """A version; cached per process by its uuid."""
        return _load(self.store.address, number, self.manifest(number)["uuid"])

    def manifest(self, number: int) -> dict[str, Any]:
        """The manifest of a version, as stored; its uuid tells it from others of the same number."""
        found = self.store.find(_manifest(number))
        if found is None:
            raise TocsinError(
                f"there is no version {number} of the subscriptions", hint=f"looked in {self.store}"
            )
        manifest = json.loads(found)
        if manifest.get("format", 1) > FORMAT:
            raise TocsinError(
                f"version {number} of the subscriptions has format {manifest['format']}, not {FORMAT}",
                hint="it was written by a newer tocsin: use that one",
            )
        if "uuid" not in manifest:  # format 1 has none
            manifest["uuid"] = str((self.store.path / _manifest(number)).stat().st_mtime_ns)
        return {"format": 1, "parts": [], "gone": {}, "taken": {}, "asked": {}, "cuts": [], **manifest}

    # -- writing ---------------------------------------------------------------------------------

    def publish(self, ddl: str, subscriptions: Any) -> int:
        """Replace the whole set; returns the number of the new version, or of the newest one if it is equal.

        An id keeps its meaning; to give it another one, use `change(replace=...)`.
        """
        wanted = SubscriptionSet.all_of(check(ddl, blocks_of(subscriptions), self.shares)[1])
        with self._write_lock():
            while True:
                old = self.newest()
                there = wanted.find(old.subscriptions.ids)
                _refuse_changed(old.subscriptions, wanted, there)
                stays = (there >= 0) & _same_subscribers(old.subscriptions, wanted, there)
                gone = old.subscriptions.ids[~stays]
                added = wanted.without(old.subscriptions.ids[stays])
                if not len(gone) and not len(added) and old.number and old.ddl == ddl:
                    return old.number
                number = self._write_next(old, ddl, old.subscriptions.take(stays), added, old.consumed)
                if number is not None:
                    return number  # else another writer took the number: compare with its version

    def declare(self, ddl: str, subscriptions: Any, by: str = "config") -> int:
        """Like `publish`, but keeps what others added; removes only what `by` declared before, and not now.

        If `by` repeats a declaration that others have replaced or removed since, their change stays. The
        first declaration in a directory takes over the whole set.
        """
        declared = SubscriptionSet.all_of(check(ddl, blocks_of(subscriptions), self.shares)[1])
        order = np.argsort(declared.ids)
        declaration = {
            f"declared:{by}": declared.ids[order].tolist(),
            f"meant:{by}": declared.digests[order].tolist(),
        }
        with self._write_lock():
            while True:
                old = self.newest()
                before = np.array(
                    old.consumed.get(f"declared:{by}", old.subscriptions.ids.tolist()), np.int64
                )
                others = _changed_since(old, declared, before, old.consumed.get(f"meant:{by}"))
                wanted = declared.without(others)
                there = wanted.find(old.subscriptions.ids)
                _refuse_changed(old.subscriptions, wanted, there)
                theirs = ~np.isin(old.subscriptions.ids, before) | np.isin(old.subscriptions.ids, others)
                stays = ((there >= 0) & _same_subscribers(old.subscriptions, wanted, there)) | (
                    theirs & (there < 0)
                )
                consumed = {**old.consumed, **declaration}
                added = wanted.without(old.subscriptions.ids[stays])
                if (
                    stays.all()
                    and not len(added)
                    and old.number
                    and (old.ddl, old.consumed) == (ddl, consumed)
                ):
                    return old.number
                number = self._write_next(old, ddl, old.subscriptions.take(stays), added, consumed)
                if number is not None:
                    return number

    def change(
        self,
        *,
        add: Any = (),
        replace: Any = (),
        remove: Iterable[int] | Index = (),
        refresh: Iterable[int] = (),
        ddl: str | None = None,
        consumed: Mapping[str, Any] | None = None,
    ) -> int:
        """Change some subscriptions, all or nothing; returns the number of the new version.

        `add` requires that an id is new, `remove` that it exists; `replace` does either. `refresh` asks for
        the deltas of deferred ones. `consumed` records the position reached in a change log.
        """
        fresh = [block for block in blocks_of(add) if len(block)]
        replacing = [block for block in blocks_of(replace) if len(block)]
        gone = np.unique(np.array(list(remove), np.int64)) if not isinstance(remove, np.ndarray) else remove
        asked = np.unique(np.array(list(refresh), np.int64))
        with self._write_lock():
            while True:
                old = self.newest()
                new_ddl = old.ddl if ddl is None else ddl
                added = SubscriptionSet.all_of(check(new_ddl, [*fresh, *replacing], self.shares)[1])
                replaced = np.concatenate([block.ids for block in replacing] or [np.empty(0, np.int64)])
                _refuse_missing(old.subscriptions, gone)
                _refuse_existing(old.subscriptions, added.without(replaced).ids)
                stays = old.subscriptions.without(np.concatenate([gone, replaced]))
                _refuse_prompt(stays, asked)
                if new_ddl != old.ddl:
                    check(new_ddl, stays.blocks())
                unchanged = not (len(added) or len(gone) or len(asked)) and new_ddl == old.ddl
                if unchanged and (consumed is None or consumed == old.consumed):
                    return old.number
                now = {**old.consumed, **(consumed or {})}
                number = self._write_next(old, new_ddl, stays, added, now, asked)
                if number is not None:
                    return number

    def compact(self, keep: Collection[int] | None = None) -> int:
        """Rewrite the newest version as few block files; remove all versions but the newest and `keep`.

        Returns its number. Without `keep`, no version is removed.
        """
        with self._write_lock() as alone:
            while True:
                old = self.newest()
                if not old.number:
                    raise TocsinError(
                        "there is no version of the subscriptions", hint=f"looked in {self.store}"
                    )
                number: int | None = old.number
                files = old.subscriptions.files
                if any(len(rows) < len(file) for file, rows in files) or len(files) > 3:
                    number = self._write_next(
                        old, old.ddl, SubscriptionSet(), _compacted(old.subscriptions), old.consumed
                    )
                if number is not None:
                    break
            if keep is not None:
                later = {
                    n for n in self.numbers() if n > max(keep, default=0)
                }  # written since the caller looked
                self._remove_others({*keep, *later, number}, 0.0 if alone else GRACE)
            return number

    @contextmanager
    def _write_lock(self) -> Iterator[bool]:
        """One writer at a time, where the store can lock: then nobody else is about to name a block file."""
        with self.store.alone() as alone:
            yield alone

    def _write_next(
        self,
        old: Version,
        ddl: str,
        stays: SubscriptionSet,
        added: SubscriptionSet,
        consumed: Mapping[str, Any],
        asked: Index = _NOBODY,
    ) -> int | None:
        """Write the version after `old`; None if another writer took its number."""
        number, same = old.number + 1, np.append(stays.ids, added.ids[added.same_as(old.subscriptions)])
        still = np.isin(list(old.asked), same)
        requests = {id: at for (id, at), here in zip(old.asked.items(), still, strict=True) if here}
        requests |= dict.fromkeys(asked.tolist(), number)
        if len(stays.files) + len(added.files) > MAX_FILES:
            stays, added = SubscriptionSet(), _compacted(SubscriptionSet.union([stays, added]))
        files = [(file.name, rows, len(file)) for file, rows in stays.files]
        fresh = [file if len(rows) == len(file) else file.take(rows) for file, rows in added.files]
        cuts = with_cuts(old.cuts, [file.ranges for file in fresh])
        for file in fresh:
            file = settled(file, old.subscriptions, cuts)
            files.append((write_block_file(self.store, file), np.arange(len(file)), len(file)))
        return self._write(number, ddl, files, consumed, requests, cuts)

    def _write(
        self,
        number: int,
        ddl: str,
        files: Sequence[tuple[str, Index, int]],
        consumed: Mapping[str, Any],
        asked: Mapping[int, int],
        cuts: Mapping[RangeColumn, Sequence[int]],
    ) -> int | None:
        """Write a version. `files` has the name, the rows in the set and the number of rows of each file."""
        gone = {}
        for file, rows, count in files:
            if len(rows) < count:
                removed = np.setdiff1d(np.arange(count), rows).astype(np.int32)
                gone[file] = self._write_array(removed)
        manifest = {
            "format": FORMAT,
            "version": number,
            "subscriptions": sum(len(rows) for _, rows, _ in files),
            "uuid": uuid.uuid4().hex,
            "taken": dict(consumed),
            "asked": dict(asked),
            "parts": [file for file, _, _ in files],
            "gone": gone,
            "cuts": [[*column, list(ends)] for column, ends in cuts.items()],
            "ddl": ddl,
        }
        is_new = self.store.put_new(_manifest(number), json.dumps(manifest, indent=1).encode())
        if not is_new and self.manifest(number)["uuid"] != manifest["uuid"]:  # else a repeated request
            self.store.delete([f"parts/{name}.gone.npy" for name in gone.values()])
            return None
        self.log.put(f"v{number:06d}.json", (json.dumps({"version": number}) + "\n").encode())
        if number > LOGGED:
            self.log.delete([f"v{number - LOGGED:06d}.json"])
        return number

    def _write_array(self, array: Any) -> str:
        """Write the removed rows of a block file; returns the name."""
        name, out = uuid.uuid4().hex, BytesIO()
        np.save(out, array)
        self.store.put(f"parts/{name}.gone.npy", out.getvalue())
        return name

    def _remove_others(self, keep: Collection[int], grace: float) -> None:
        """Remove all other versions, and what only they use; but nothing that is younger than `grace`."""
        parts = self.store.list("parts")  # before the versions: what they do not name is not named later
        used = set()
        for number in self.numbers():
            if number in keep:
                manifest = self.manifest(number)
                used |= {f"parts/{name}.arrow" for name in manifest["parts"]}
                used |= {f"parts/{name}.gone.npy" for name in manifest["gone"].values()}
            else:
                self.store.delete([entry.key for entry in self.store.list(f"v{number:06d}")])
        old = time.time() - grace
        self.store.delete([one.key for one in parts if one.key not in used and one.modified <= old])


def _manifest(number: int) -> str:
    return f"v{number:06d}/manifest.json"


@lru_cache(maxsize=8)
def _load(address: str, number: int, uuid: str) -> Version:
    store, manifest = open_store(address), Versions(address).manifest(number)
    folder = f"v{number:06d}"
    if manifest["format"] == 1:
        with store.map(f"{folder}/subscriptions.arrow") as source:
            return replace(draft(manifest["ddl"], ipc.open_file(source).read_all()), number=number, uuid=uuid)
    files = []
    for name in manifest["parts"]:
        file = load_block_file(address, name)
        rows = np.arange(len(file))
        if manifest["format"] == 2:
            gone = store.find(f"{folder}/{name}.gone.npy")
        else:
            gone = store.get(f"parts/{manifest['gone'][name]}.gone.npy") if name in manifest["gone"] else None
        files.append((file, rows if gone is None else np.setdiff1d(rows, np.load(BytesIO(gone)))))
    asked = {int(id): version for id, version in manifest["asked"].items()}
    cuts = {RangeColumn.from_json(column): ends for *column, ends in manifest["cuts"]}
    found = SubscriptionSet(tuple(files))
    return Version(number, manifest["ddl"], found, uuid, manifest["taken"], asked, cuts)


def _changed_since(old: Version, declared: SubscriptionSet, ids: Index, meant: Sequence[int] | None) -> Index:
    """The ids that are declared as before but that others have replaced or removed since."""
    if meant is None or len(meant) != len(ids):
        return np.empty(0, np.int64)
    known = dict(zip(ids.tolist(), meant, strict=True))
    pairs = zip(declared.ids.tolist(), declared.digests.tolist(), strict=True)
    same = np.array([known.get(number) == digest for number, digest in pairs], np.bool_)
    there = old.subscriptions.find(declared.ids)
    now = np.append(old.subscriptions.digests, np.uint64(0))[there]
    return declared.ids[same & ((there < 0) | (now != declared.digests))]


def _compacted(subscriptions: SubscriptionSet) -> SubscriptionSet:
    """The same subscriptions in one block file for each kind, subject and list of columns."""
    alike: dict[Any, list[tuple[BlockFile, Index]]] = {}
    for file, rows in subscriptions.files:
        if len(rows):
            block = file.block
            alike.setdefault((block.kind, block.subject, block.table.schema), []).append((file, rows))
    out = []
    for (kind, subject, _), some in alike.items():
        keys: dict[Any, int] = {}
        codes = [
            np.array([keys.setdefault(key, len(keys)) for key in file.shard_keys], np.int16)[
                file.key_code[rows]
            ]
            for file, rows in some
        ]
        tables = [file.block.table.take(pa.array(rows)) for file, rows in some]
        block = SubscriptionBlock(kind, subject, pa.concat_tables(tables).combine_chunks())
        digests = np.concatenate([file.digests[rows] for file, rows in some])
        ranges = RowRanges.concat([file.ranges.take(rows) for file, rows in some])
        out.append(BlockFile("", block, digests, tuple(keys), np.concatenate(codes), ranges))
    return SubscriptionSet.all_of(out)


def with_cuts(
    cuts: Mapping[RangeColumn, Sequence[int]], added: Sequence[RowRanges]
) -> Mapping[RangeColumn, Sequence[int]]:
    """The cuts, and those of columns that enough new subscriptions select ranges of."""
    found = dict(cuts)
    for column, low, high in columns_in(added):
        if column not in found and len(low) >= ENOUGH:
            found[column] = cuts_of(low, high)
    return found


def settled(file: BlockFile, old: SubscriptionSet, cuts: Mapping[RangeColumn, Sequence[int]]) -> BlockFile:
    """A new block file without the ranges of columns that have no cuts: its rows stay where they are now.

    A subscription that is there already, under the same id and with the same meaning, stays where it is too.
    """
    known = np.array([*(column in cuts for column in file.ranges.columns), False], np.bool_)
    keep = known[file.ranges.column]
    at = old.find(file.block.ids)
    same = np.flatnonzero(at >= 0)
    same = same[old.digests[at[same]] == file.digests[same]]
    if len(same):
        keep[same] &= old.placed_by_range[at[same]]
    return replace(file, ranges=file.ranges.only(keep))


def _same_subscribers(old: SubscriptionSet, new: SubscriptionSet, there: Index) -> Any:
    """Whether each old subscription has the same subscriber at position `there` of the new set."""
    before, after = old.subscribers, new.subscribers
    if before is None and after is None:
        return np.ones(len(old), np.bool_)
    was = np.full(len(old), None, object) if before is None else before.to_numpy(zero_copy_only=False)
    now = np.full(len(new) + 1, None, object)
    if after is not None:
        now[:-1] = after.to_numpy(zero_copy_only=False)
    return was == now[there]


def _refuse_changed(old: SubscriptionSet, new: SubscriptionSet, there: Index) -> None:
    """Reject an id with another meaning: whoever keeps contents by id could not tell the two apart."""
    both = np.flatnonzero(there >= 0)
    if not len(both):
        return
    other = both[old.digests[both] != new.digests[there[both]]]
    if not len(other):
        return
    number = old.ids[other[0]]
    was, now = (some.only(np.array([number])).blocks()[0] for some in (old, new))
    fact = f"subscription {number} is given another meaning"
    if was.kind == now.kind == BlockKind.TEXTS:
        before, after = was.table.to_pylist()[0], now.table.to_pylist()[0]
        name = next(name for name in ("sql", "valid_from", "valid_to") if before[name] != after[name])
        fact = (
            f"subscription {number} has another {name} than before: {before[name]!r} became {after[name]!r}"
        )
    raise SubscriptionError(fact, hint="give the new one a new id, or replace it")


def _refuse_missing(there: SubscriptionSet, ids: Index) -> None:
    if len(missing := ids[there.find(ids) < 0]):
        raise SubscriptionError(f"there is no subscription {missing[0]}", hint="nothing was changed")


def _refuse_prompt(there: SubscriptionSet, ids: Index) -> None:
    """Raise for ids that are not there, or whose deltas come with each change."""
    _refuse_missing(there, ids)
    for key, some in there.only(ids).by_shard_key().items() if len(ids) else ():
        if key.shape is not Shape.DEFERRED:
            hint = "its deltas come with each change; to defer them add WITH (refresh = 'on demand')"
            raise SubscriptionError(f"subscription {some.ids[0]} is always up to date", hint=hint)


def _refuse_existing(there: SubscriptionSet, ids: Index) -> None:
    if len(known := ids[there.find(ids) >= 0]):
        raise SubscriptionError(
            f"there is a subscription {known[0]} already", hint="replace it, or give the new one a new id"
        )
