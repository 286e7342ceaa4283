"""A log of changes to the subscriptions: files that are dropped into a directory while a pipeline runs.

A file is JSON lines or Parquet. Each row has an `op` (add, replace, remove), an `id`, perhaps a `subscriber`,
and says what is asked for in one of three ways:

    {"op": "add", "id": 7, "subscriber": "ann", "sql": "SELECT * FROM hits WHERE ms > 900"}
    {"op": "add", "id": 8, "template": "SELECT * FROM hits WHERE ms > :most", "values": {"most": 900}}
    {"op": "replace", "id": 9, "relation": "hits",
     "predicates": [{"attribute": "ms", "op": ">", "number": 9}]}                  (in one line)
    {"op": "remove", "id": 7}

In Parquet the parameters of templates are columns, or `values` is a column of JSON texts. Files are taken in
order of their names, each once: the version that a file makes says that it was taken (`taken`), so a
crash takes none twice and none never. A row that cannot be taken is refused with a reason, to
`<versions>/refused/<file>.jsonl`, and the rest goes on. Write a file aside and rename it into the directory;
names that begin with a dot or an underscore are passed over.
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
from tocsin.model.columns import Index
from tocsin.spark.versions.entries import SCHEMA
from tocsin.spark.versions.lots import Lot, predicate_lot, subscribe, template_lot
from tocsin.spark.versions.parts import Chosen
from tocsin.spark.versions.pins import put
from tocsin.spark.versions.versions import Versions

__all__ = ["OPS", "Log", "Refused", "lots_in", "take_rows", "tell_refused"]

OPS = ("add", "replace", "remove")
_OWN = {"op", *SCHEMA.names, "template", "values", "relation", "predicates"}


class Log:
    """The files of one directory."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def names(self) -> list[str]:
        """The files there are, in order."""
        try:
            found = [file.name for file in self.path.iterdir() if file.is_file()]
        except FileNotFoundError:
            return []
        return sorted(name for name in found if name[0] not in "._")

    def take(self, versions: Versions) -> int | None:
        """Make a version of each file that was not taken yet; the number of the last one, if any."""
        number = None
        taken = set(versions.newest().taken.get(self._key, ()))
        for name in self.names():
            if name in taken:
                continue
            taken.add(name)
            try:
                rows: Any = _read(self.path / name)
            except (OSError, ValueError, pa.ArrowException) as error:
                rows = [Refused({"file": name}, f"the file cannot be read: {error}")]
            refused = take_rows(versions, rows, {self._key: sorted(taken)})
            tell_refused(versions.path / "refused" / f"{name}.jsonl", refused)
            number = versions.latest()
        return number

    @property
    def _key(self) -> str:
        return f"log:{self.path.absolute()}"


@dataclass(frozen=True)
class Refused:
    """A row that was not taken, and why."""

    row: Mapping[str, Any]
    reason: str


def take_rows(versions: Versions, rows: Sequence[Any], taken: Mapping[str, Any]) -> list[Refused]:
    """Change the newest version by rows of a log, in order; returns those that were refused.

    Of several rows about one id the last one counts, if each could follow the one before it.
    """
    refused = [row for row in rows if isinstance(row, Refused)]
    parsed = [row for row in rows if not isinstance(row, Refused)]
    pieces, more = _pieces(parsed)
    refused += more
    while True:
        newest = versions.newest()
        before, said = newest.number, list(refused)
        change = _settled(newest.chosen, pieces, said)
        lots = {op: _good(newest.ddl, change.lots[op], said) for op in ("add", "replace")}
        try:
            versions.change(add=lots["add"], replace=lots["replace"], remove=change.removed, taken=taken)
            return said
        except SubscriptionError:
            if versions.latest() == before:  # else somebody changed it meanwhile: once more
                raise


@dataclass
class Piece:
    """Rows of one kind, template or relation: their operations, ids and places in the log, and the lot."""

    ops: list[str]
    places: Index
    lot: Lot


@dataclass
class Change:
    """What rows of a log come to."""

    lots: dict[str, list[Lot]] = field(default_factory=lambda: {"add": [], "replace": []})
    removed: list[int] = field(default_factory=list)


def _settled(there: Chosen, pieces: list[Piece], refused: list[Refused]) -> Change:
    """The last row of each id, if it may follow what was there."""
    if not pieces:
        return Change()
    ids = np.concatenate([piece.lot.ids for piece in pieces])
    ops = [op for piece in pieces for op in piece.ops]
    where = np.concatenate([piece.places for piece in pieces])
    owner = np.repeat(np.arange(len(pieces)), [len(piece.lot) for piece in pieces])
    row = np.concatenate([np.arange(len(piece.lot)) for piece in pieces])
    order = np.argsort(where)
    known = dict(zip(ids.tolist(), (there.find(ids) >= 0).tolist(), strict=True))
    first, last = dict(known), {}
    for i in order.tolist():
        number, op = int(ids[i]), ops[i]
        if op == "add" and known[number]:
            refused.append(Refused({"op": op, "id": number}, f"there is a subscription {number} already"))
        elif op == "remove" and not known[number]:
            refused.append(Refused({"op": op, "id": number}, f"there is no subscription {number}"))
        else:
            known[number], last[number] = op != "remove", i
    change = Change()
    kept: dict[tuple[str, int], list[int]] = {}
    for number, i in last.items():
        if ops[i] == "remove":
            change.removed += [number] if first[number] else []
        else:
            kept.setdefault(("replace" if first[number] else "add", int(owner[i])), []).append(int(row[i]))
    for (op, which), rows in kept.items():
        change.lots[op].append(pieces[which].lot.take(np.array(sorted(rows))))
    return change


def _good(ddl: str, lots: list[Lot], refused: list[Refused]) -> list[Lot]:
    """The lots without rows that an engine would refuse."""
    from tocsin.engine import Engine

    out = []
    for lot in lots:
        while len(lot):
            engine = Engine(retain=False)
            engine.execute(ddl)
            try:
                subscribe(engine, lot)
                out.append(lot)
                break
            except TocsinError as error:
                rows = getattr(error, "rows", ())
                wrong = dict(rows) or dict.fromkeys(range(len(lot)), error.fact)
                for row, reason in wrong.items():
                    refused.append(Refused({"id": int(lot.ids[row])}, reason))
                lot = lot.take(np.setdiff1d(np.arange(len(lot)), list(wrong)))
    return out


# -- reading -----------------------------------------------------------------------------------------


def _read(file: Path) -> list[Any]:
    if file.suffix == ".parquet":
        return list(parquet.read_table(file).to_pylist())
    rows: list[Any] = []
    for line in file.read_text("utf-8").splitlines():
        if line.strip():
            try:
                rows.append(json.loads(line))
            except ValueError as error:
                rows.append(Refused({"line": line}, f"not JSON: {error}"))
    return rows


def lots_in(rows: Sequence[Any]) -> tuple[list[Lot], list[Refused]]:
    """Rows that are all to be added, as lots; and those that say nothing."""
    pieces, refused = _pieces([{**row, "op": "add"} if isinstance(row, dict) else row for row in rows])
    return [piece.lot for piece in pieces], refused


def _pieces(rows: Sequence[Any]) -> tuple[list[Piece], list[Refused]]:
    """Rows by kind, template and relation."""
    groups: dict[tuple[str, str], list[tuple[int, dict[str, Any]]]] = {}
    refused = []
    for place, row in enumerate(rows):
        try:
            groups.setdefault(_kind(row), []).append((place, row))
        except ValueError as error:
            refused.append(Refused(row if isinstance(row, dict) else {"row": row}, str(error)))
    pieces = []
    for (kind, about), some in groups.items():
        for lot, chosen in _lots(kind, about, [row for _, row in some], refused):
            places = np.array([some[i][0] for i in chosen], np.int64)
            pieces.append(Piece([some[i][1]["op"] for i in chosen], places, lot))
    return pieces, refused


def _kind(row: Any) -> tuple[str, str]:
    """What a row is, or why it is nothing."""
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
    if row["op"] == "remove":
        return "texts", "removed"
    if len(given) != 1:
        raise ValueError(f"a row has one of sql, template and predicates, not {len(given)} of them")
    if given == ["sql"]:
        return "texts", ""
    about = row["template"] if given == ["template"] else row.get("relation")
    if not isinstance(about, str):
        wrong = (
            "a template is text" if given == ["template"] else "predicates need the name of their relation"
        )
        raise ValueError(wrong)
    return ("template" if given == ["template"] else "predicates"), about


def _lots(
    kind: str, about: str, rows: list[dict[str, Any]], refused: list[Refused]
) -> Iterator[tuple[Lot, list[int]]]:
    """The rows as one lot; if they do not fit into columns, each as one of its own."""
    try:
        yield _lot(kind, about, rows), list(range(len(rows)))
    except (pa.ArrowException, ValueError, TypeError, OverflowError, SubscriptionError) as error:
        if len(rows) == 1:
            refused.append(Refused(rows[0], getattr(error, "fact", str(error))))
            return
        for i, row in enumerate(rows):
            for lot, _ in _lots(kind, about, [row], refused):
                yield lot, [i]


def _lot(kind: str, about: str, rows: list[dict[str, Any]]) -> Lot:
    table = {
        "id": pa.array([row["id"] for row in rows], pa.int64()),
        "subscriber": pa.array([row.get("subscriber") for row in rows], pa.string()),
    }
    if kind == "template":
        values = [_values(row) for row in rows]
        names = dict.fromkeys(name for one in values for name in one)
        table |= {name: pa.array([one.get(name) for one in values]) for name in names}
        return template_lot(about, pa.table(table))
    if kind == "predicates":
        return predicate_lot(about, pa.table({**table, "predicates": [row["predicates"] for row in rows]}))
    plain = [{**{name: row.get(name) for name in SCHEMA.names}, "sql": row.get("sql") or ""} for row in rows]
    for row in plain:
        row |= {name: _time(row[name]) for name in ("valid_from", "valid_to")}
    return Lot("texts", "", pa.Table.from_pylist(plain, schema=SCHEMA))


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


def tell_refused(file: Path, refused: list[Refused]) -> None:
    """Write down what was refused, if anything was."""
    if refused:
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps({**one.row, "reason": one.reason}, default=str) for one in refused]
        put(file, "\n".join(lines) + "\n")
