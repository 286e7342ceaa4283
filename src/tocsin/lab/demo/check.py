"""Are the answers right? Contents kept from the deltas, against the reference.

What came out of the pipeline is added up from deltas alone (`received.py`). What should have come out is
the query over the final tables, by brute force. The final tables are made here by replaying the
changes into dicts, without the engine.

The reference looks at every row and pairs every row with every row. So rows that fail a condition on their
own table are left out before: most by a range of one column (`ordered.py`), the rest by the reference's own
`holds`; and each row of the first table is paired only with rows that are equal to it where the join says
so. The answer is the same, the product is small.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple

from tocsin.lab.demo.flights import Change
from tocsin.lab.demo.ordered import Ordered, Rows
from tocsin.lab.demo.received import Contents
from tocsin.language.algebra import And, Equal, Predicate, Query, TableRef, atoms
from tocsin.model.schema import Stream, Table
from tocsin.model.text import row_json
from tocsin.reference import as_bag, evaluate, holds

__all__ = ["Checked", "check", "conjuncts", "draw_sample", "expected", "final_tables"]


class Checked(NamedTuple):
    """How many contents were compared, and the subscriptions whose content was wrong."""

    right: int
    wrong: tuple[int, ...]

    @property
    def total(self) -> int:
        return self.right + len(self.wrong)


def final_tables(
    changes: Iterable[Change], schemas: Iterable[Table | Stream]
) -> dict[str, list[dict[str, Any]]]:
    """The rows at the end, by plain dicts; of a stream, all its events."""
    keys = {schema.name: schema.key for schema in schemas}
    rows: dict[str, dict[Any, dict[str, Any]]] = {name: {} for name in keys}
    for change in changes:
        held = rows[change.table]
        key = tuple(change.row[name] for name in keys[change.table]) or len(held)
        if change.op == "delete":
            del held[key]
        else:
            held[key] = held.get(key, {}) | change.row
    return {name: list(held.values()) for name, held in rows.items()}


def expected(query: Query, rows: Ordered, keys: Mapping[str, tuple[str, ...]]) -> list[dict[str, Any]]:
    """The answer by the reference, as JSON would give it back."""
    several = len(query.tables) > 1
    parts = conjuncts(query.where)
    narrow: dict[str, list[Mapping[str, Any]]] = {}
    for table in query.tables:
        relation = table.alias if several else ""
        own = [p for p in parts if {atom.column.relation for atom in atoms(p)} == {relation}]
        shown = (lambda row, alias=table.alias: {alias: row}) if several else (lambda row: row)
        near = rows.near(table.name, own)
        narrow[table.alias] = [row for row in near if all(holds(p, shown(row)) for p in own)]
    renamed = replace(query, tables=tuple(TableRef(table.alias, table.alias) for table in query.tables))
    own_keys = {table.alias: keys[table.name] for table in query.tables}
    some = _partners(query, narrow) if several else [narrow]
    return [json.loads(row_json(row)) for part in some for row in evaluate(renamed, part, own_keys)]


def _partners(
    query: Query, rows: Mapping[str, list[Mapping[str, Any]]]
) -> Iterator[dict[str, list[Mapping[str, Any]]]]:
    """Each row of the first table, and of the others what equals it in the columns that join them."""
    first, *others = (table.alias for table in query.tables)
    sides = [{c.relation: c.name for c in (j.left, j.right)} for j in query.joins if isinstance(j, Equal)]
    found: dict[str, tuple[list[str], dict[Any, list[Mapping[str, Any]]]]] = {}
    for alias in others:
        mine = [side for side in sides if side.keys() == {first, alias}]
        index: dict[Any, list[Mapping[str, Any]]] = {}
        for row in rows[alias]:
            index.setdefault(tuple(row.get(side[alias]) for side in mine), []).append(row)
        found[alias] = [side[first] for side in mine], index
    for row in rows[first]:
        near = {
            alias: index.get(tuple(row.get(name) for name in names), [])
            for alias, (names, index) in found.items()
        }
        if all(near.values()):
            yield {first: [row], **near}


def draw_sample(labels: Mapping[int, str], *, each: int, seed: int) -> list[int]:
    """The numbers of `each` subscriptions of every shape, chosen by the seed."""
    draw, by_label = Random(seed), dict[str, list[int]]()
    for number in sorted(labels):
        by_label.setdefault(labels[number], []).append(number)
    return [n for _, mine in sorted(by_label.items()) for n in draw.sample(mine, min(each, len(mine)))]


def check(
    contents: Contents, queries: Mapping[int, Query], rows: Rows, keys: Mapping[str, tuple[str, ...]]
) -> Checked:
    """Compare the contents of some queries with what the reference says."""
    ordered = Ordered(rows)
    wrong = [
        number
        for number, query in queries.items()
        if as_bag(contents.content(number)) != as_bag(expected(query, ordered, keys))
    ]
    return Checked(len(queries) - len(wrong), tuple(wrong))


def conjuncts(predicate: Predicate) -> list[Predicate]:
    """The conditions that AND joins at the top."""
    if isinstance(predicate, And):
        return [part for arg in predicate.args for part in conjuncts(arg)]
    return [predicate]
