"""Changes of the subscriptions as files that are put into a directory while a pipeline runs.

A file is JSON lines or Parquet. Each row has an `op` (add, replace, remove, refresh) and an `id`. With add
and replace it may have a `subscriber`, and it defines the subscription in one of three ways:

    {"op": "add", "id": 7, "subscriber": "ann", "sql": "SELECT * FROM hits WHERE ms > 900"}
    {"op": "add", "id": 8, "template": "SELECT * FROM hits WHERE ms > :most", "values": {"most": 900}}
    {"op": "replace", "id": 9, "relation": "hits",
     "predicates": [{"attribute": "ms", "op": ">", "number": 9}]}                  (in one line)
    {"op": "remove", "id": 7}
    {"op": "refresh", "id": 10}                       asks for the deltas of a deferred subscription

In Parquet the parameters of templates are columns, or `values` is a column of JSON texts. Files are applied
in order of their names, each exactly once: the version that a file makes records the file as consumed, in
the same atomic step. A row that cannot be applied is rejected with a reason, to
`<versions>/refused/<file>.jsonl`; the other rows are applied. Write a file aside and rename it into the
directory; names that begin with a dot or an underscore are skipped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

from tocsin.errors import SubscriptionError, TocsinError
from tocsin.language.shape import Shape
from tocsin.model.columns import Index
from tocsin.spark.storage.store import Store, open_store
from tocsin.spark.versions.blocks import (
    SCHEMA,
    BlockKind,
    SubscriptionBlock,
    predicate_block,
    subscribe,
    template_block,
)
from tocsin.spark.versions.store import Versions
from tocsin.spark.versions.subscription_sets import SubscriptionSet, trial_engine

__all__ = ["OPS", "ChangeLog", "RejectedRow", "apply_rows", "blocks_in", "write_rejected"]

OPS = ("add", "replace", "remove", "refresh")
_OWN = {"op", *SCHEMA.names, "template", "values", "relation", "predicates"}


class ChangeLog:
    """The files of one directory."""

    def __init__(self, place: str | Path | Store) -> None:
        self.store = open_store(place)

    @property
    def path(self) -> Path:
        """The folder, if the files are in one."""
        return self.store.path

    def names(self) -> list[str]:
        """The names of all files, in order."""
        found = [entry.key for entry in self.store.list() if "/" not in entry.key]
        return sorted(name for name in found if name[0] not in "._")

    def apply(self, versions: Versions) -> int | None:
        """Make a version of each file that is not consumed; returns the number of the last one, if any."""
        number = None
        consumed = set(versions.newest().consumed.get(self._key, ()))
        for name in self.names():
            if name in consumed:
                continue
            consumed.add(name)
            try:
                rows: Any = _read(name, self.store.get(name))
            except (OSError, ValueError, pa.ArrowException) as error:
                rows = [RejectedRow({"file": name}, f"the file cannot be read: {error}")]
            rejected = apply_rows(versions, rows, {self._key: sorted(consumed)})
            write_rejected(versions.store / "refused", f"{name}.jsonl", rejected)
            number = versions.latest()
        return number

    @property
    def _key(self) -> str:
        return f"log:{self.store.address}"


@dataclass(frozen=True)
class RejectedRow:
    """A row that was not applied, and why."""

    row: Mapping[str, Any]
    reason: str


def apply_rows(versions: Versions, rows: Sequence[Any], consumed: Mapping[str, Any]) -> list[RejectedRow]:
    """Change the newest version by rows of a log, in order; returns the rejected rows.

    If several rows have one id, the last one counts, provided that each is valid after the one before it.
    """
    rejected = [row for row in rows if isinstance(row, RejectedRow)]
    parsed = [row for row in rows if not isinstance(row, RejectedRow)]
    groups, more = _grouped(parsed)
    rejected += more
    while True:
        newest = versions.newest()
        before, reported = newest.number, list(rejected)
        change = _net_change(newest.subscriptions, groups, reported)
        blocks = {
            op: _valid(newest.ddl, change.blocks[op], reported, versions.shares) for op in ("add", "replace")
        }
        try:
            versions.change(
                add=blocks["add"],
                replace=blocks["replace"],
                remove=change.removed,
                refresh=_deferred(newest.subscriptions, change, blocks, reported),
                consumed=consumed,
            )
            return reported
        except SubscriptionError:
            if versions.latest() == before:  # else another writer changed it meanwhile: retry
                raise


@dataclass
class LogGroup:
    """Rows of one kind, template or relation: their operations, their positions in the log, and the block."""

    ops: list[str]
    positions: Index
    block: SubscriptionBlock


@dataclass
class NetChange:
    """The combined effect of some rows of a log."""

    blocks: dict[str, list[SubscriptionBlock]] = field(default_factory=lambda: {"add": [], "replace": []})
    removed: list[int] = field(default_factory=list)
    refreshed: list[int] = field(default_factory=list)


def _net_change(there: SubscriptionSet, groups: list[LogGroup], rejected: list[RejectedRow]) -> NetChange:
    """The last valid row of each id; an `add` of a known id or a `remove` of an unknown one is rejected."""
    if not groups:
        return NetChange()
    ids = np.concatenate([group.block.ids for group in groups])
    ops = [op for group in groups for op in group.ops]
    where = np.concatenate([group.positions for group in groups])
    owner = np.repeat(np.arange(len(groups)), [len(group.block) for group in groups])
    row = np.concatenate([np.arange(len(group.block)) for group in groups])
    order = np.argsort(where)
    known = dict(zip(ids.tolist(), (there.find(ids) >= 0).tolist(), strict=True))
    first, last = dict(known), {}
    refreshed: dict[int, None] = {}
    for i in order.tolist():
        number, op = int(ids[i]), ops[i]
        if op == "add" and known[number]:
            rejected.append(
                RejectedRow({"op": op, "id": number}, f"there is a subscription {number} already")
            )
        elif op in ("remove", "refresh") and not known[number]:
            rejected.append(RejectedRow({"op": op, "id": number}, f"there is no subscription {number}"))
        elif op == "refresh":
            refreshed[number] = None
        else:
            known[number], last[number] = op != "remove", i
    change = NetChange(refreshed=list(refreshed))
    kept: dict[tuple[str, int], list[int]] = {}
    for number, i in last.items():
        if ops[i] == "remove":
            change.removed += [number] if first[number] else []
        else:
            kept.setdefault(("replace" if first[number] else "add", int(owner[i])), []).append(int(row[i]))
    for (op, which), rows in kept.items():
        change.blocks[op].append(groups[which].block.take(np.array(sorted(rows))))
    return change


def _valid(
    ddl: str, blocks: list[SubscriptionBlock], rejected: list[RejectedRow], shares: int
) -> list[SubscriptionBlock]:
    """The blocks without the rows that an engine rejects."""
    out = []
    for block in blocks:
        while len(block):
            engine = trial_engine(ddl, shares)
            try:
                subscribe(engine, block)
                out.append(block)
                break
            except TocsinError as error:
                rows = getattr(error, "rows", ())
                wrong = dict(rows) or dict.fromkeys(range(len(block)), error.fact)
                for row, reason in wrong.items():
                    rejected.append(RejectedRow({"id": int(block.ids[row])}, reason))
                block = block.take(np.setdiff1d(np.arange(len(block)), list(wrong)))
    return out


def _deferred(
    there: SubscriptionSet,
    change: NetChange,
    blocks: Mapping[str, list[SubscriptionBlock]],
    rejected: list[RejectedRow],
) -> list[int]:
    """The subscriptions to be refreshed; those that the same rows define begin up to date."""
    gone = {*change.removed, *(id for some in blocks.values() for block in some for id in block.ids.tolist())}
    wanted = there.only(np.array(change.refreshed, np.int64))
    found = []
    for key, some in wanted.without(np.array(sorted(gone), np.int64)).by_shard_key().items():
        if key.shape is Shape.DEFERRED:
            found += some.ids.tolist()
        else:
            rows = ({"op": "refresh", "id": id} for id in some.ids.tolist())
            rejected += [RejectedRow(row, f"subscription {row['id']} is always up to date") for row in rows]
    return found


# -- reading -----------------------------------------------------------------------------------------


def _read(name: str, content: bytes) -> list[Any]:
    if name.endswith(".parquet"):
        return list(parquet.read_table(pa.BufferReader(content)).to_pylist())
    rows: list[Any] = []
    for line in content.decode("utf-8").splitlines():
        if line.strip():
            try:
                rows.append(json.loads(line))
            except ValueError as error:
                rows.append(RejectedRow({"line": line}, f"not JSON: {error}"))
    return rows


def blocks_in(rows: Sequence[Any]) -> tuple[list[SubscriptionBlock], list[RejectedRow]]:
    """Rows to be added, as blocks; and the rejected ones."""
    groups, rejected = _grouped([{**row, "op": "add"} if isinstance(row, dict) else row for row in rows])
    return [group.block for group in groups], rejected


def _grouped(rows: Sequence[Any]) -> tuple[list[LogGroup], list[RejectedRow]]:
    """Rows by kind, template and relation."""
    by_kind: dict[tuple[BlockKind, str], list[tuple[int, dict[str, Any]]]] = {}
    rejected = []
    for position, row in enumerate(rows):
        try:
            by_kind.setdefault(_kind(row), []).append((position, row))
        except ValueError as error:
            rejected.append(RejectedRow(row if isinstance(row, dict) else {"row": row}, str(error)))
    groups = []
    for (kind, subject), some in by_kind.items():
        for block, chosen in _blocks(kind, subject, [row for _, row in some], rejected):
            positions = np.array([some[i][0] for i in chosen], np.int64)
            groups.append(LogGroup([some[i][1]["op"] for i in chosen], positions, block))
    return groups, rejected


def _kind(row: Any) -> tuple[BlockKind, str]:
    """The kind and subject of a row; raises if it is not valid."""
    if not isinstance(row, dict):
        raise ValueError("a row is an object with op and id")
    if row.get("op") not in OPS:
        raise ValueError(f"unknown op {row.get('op')!r}: one of {', '.join(OPS)}")
    number = row.get("id")
    if not isinstance(number, int) or isinstance(number, bool) or not -(2**62) <= number < 2**63:
        raise ValueError(f"{number!r} is no id")
    if row.get("subscriber") is not None and not isinstance(row["subscriber"], str):
        raise ValueError(f"a subscriber is named by text, not {row['subscriber']!r}")
    given = [name for name in ("sql", "template", "predicates") if row.get(name) is not None]
    if row["op"] in ("remove", "refresh"):
        return BlockKind.TEXTS, "removed"
    if len(given) != 1:
        raise ValueError(f"a row has one of sql, template and predicates, not {len(given)} of them")
    if given == ["sql"]:
        return BlockKind.TEXTS, ""
    subject = row["template"] if given == ["template"] else row.get("relation")
    if not isinstance(subject, str):
        wrong = (
            "a template is text" if given == ["template"] else "predicates need the name of their relation"
        )
        raise ValueError(wrong)
    return BlockKind(given[0]), subject


def _blocks(
    kind: BlockKind, subject: str, rows: list[dict[str, Any]], rejected: list[RejectedRow]
) -> Iterator[tuple[SubscriptionBlock, list[int]]]:
    """The rows as one block; if they do not fit into columns, each as its own block."""
    try:
        yield _block(kind, subject, rows), list(range(len(rows)))
    except (pa.ArrowException, ValueError, TypeError, OverflowError, SubscriptionError) as error:
        if len(rows) == 1:
            rejected.append(RejectedRow(rows[0], getattr(error, "fact", str(error))))
            return
        for i, row in enumerate(rows):
            for block, _ in _blocks(kind, subject, [row], rejected):
                yield block, [i]


def _block(kind: BlockKind, subject: str, rows: list[dict[str, Any]]) -> SubscriptionBlock:
    table = {
        "id": pa.array([row["id"] for row in rows], pa.int64()),
        "subscriber": pa.array([row.get("subscriber") for row in rows], pa.string()),
    }
    if kind == BlockKind.TEMPLATE:
        values = [_values(row) for row in rows]
        names = dict.fromkeys(name for one in values for name in one)
        table |= {name: pa.array([one.get(name) for one in values]) for name in names}
        return template_block(subject, pa.table(table))
    if kind == BlockKind.PREDICATES:
        return predicate_block(
            subject, pa.table({**table, "predicates": [row["predicates"] for row in rows]})
        )
    plain = [{**{name: row.get(name) for name in SCHEMA.names}, "sql": row.get("sql") or ""} for row in rows]
    for row in plain:
        row |= {name: _time(row[name]) for name in ("valid_from", "valid_to")}
    return SubscriptionBlock(BlockKind.TEXTS, "", pa.Table.from_pylist(plain, schema=SCHEMA))


def _values(row: dict[str, Any]) -> dict[str, Any]:
    """The values of a template's parameters: an object, its JSON text, or columns beside the others."""
    values = row.get("values")
    if isinstance(values, str):
        values = json.loads(values)
    if values is None:
        values = {name: value for name, value in row.items() if name not in _OWN}
    if not isinstance(values, dict):
        raise ValueError(f"values are an object, not {values!r}")
    return values


def _time(value: Any) -> datetime | None:
    return datetime.fromisoformat(value) if isinstance(value, str) else value


def write_rejected(store: Store, key: str, rejected: list[RejectedRow]) -> None:
    """Write the rejected rows with their reasons, if there are any."""
    if rejected:
        lines = [json.dumps({**one.row, "reason": one.reason}, default=str) for one in rejected]
        store.put(key, ("\n".join(lines) + "\n").encode())
