"""Are the answers right? Contents kept from the deltas, against the reference.

What came out of the pipeline is added up by a `Client`, which knows nothing but deltas. What should
have come out is the query over the final tables, by brute force. The final tables are made here by
replaying the changes into dicts, without the engine.

The reference pairs every row with every row, so rows that fail a condition on their own table are
left out before, by the reference's own `holds`: the answer is the same, the product is small.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from random import Random
from typing import Any, NamedTuple

from tocsin.client import Client
from tocsin.demo.flights import Change
from tocsin.language.algebra import And, Predicate, Query, TableRef, atoms
from tocsin.model.delta import Delta
from tocsin.model.schema import Stream, Table
from tocsin.model.text import row_json
from tocsin.reference import as_bag, evaluate, holds

__all__ = ["Checked", "check_sample", "checksum", "conjuncts", "expected", "final_tables", "receive"]

Rows = Mapping[str, Sequence[Mapping[str, Any]]]


class Checked(NamedTuple):
    """How many contents were compared, and the subscriptions whose content was wrong."""

    right: int
    wrong: tuple[int, ...]

    @property
    def total(self) -> int:
        return self.right + len(self.wrong)


def receive(ids: Iterable[int], deltas: Iterable[Delta]) -> Client:
    """A client that was there from the start. A lost or doubled delta raises."""
    client = Client()
    for number in ids:
        client.start(number)
    client.receive(deltas)
    return client


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


def expected(query: Query, rows: Rows, keys: Mapping[str, tuple[str, ...]]) -> list[dict[str, Any]]:
    """The answer by the reference, as JSON would give it back."""
    several = len(query.tables) > 1
    parts = conjuncts(query.where)
    narrow: dict[str, list[Mapping[str, Any]]] = {}
    for table in query.tables:
        relation = table.alias if several else ""
        own = [p for p in parts if {atom.column.relation for atom in atoms(p)} == {relation}]
        shown = (lambda row, alias=table.alias: {alias: row}) if several else (lambda row: row)
        narrow[table.alias] = [row for row in rows[table.name] if all(holds(p, shown(row)) for p in own)]
    renamed = replace(query, tables=tuple(TableRef(table.alias, table.alias) for table in query.tables))
    own_keys = {table.alias: keys[table.name] for table in query.tables}
    return [json.loads(row_json(row)) for row in evaluate(renamed, narrow, own_keys)]


def check_sample(
    client: Client,
    queries: Mapping[int, Query],
    labels: Mapping[int, str],
    rows: Rows,
    keys: Mapping[str, tuple[str, ...]],
    *,
    each: int,
    seed: int,
) -> Checked:
    """Compare `each` contents of every shape, chosen by the seed."""
    draw, right, wrong = Random(seed), 0, []
    for label in sorted(set(labels.values())):
        mine = sorted(number for number, other in labels.items() if other == label)
        for number in draw.sample(mine, min(each, len(mine))):
            if as_bag(client.content(number)) == as_bag(expected(queries[number], rows, keys)):
                right += 1
            else:
                wrong.append(number)
    return Checked(right, tuple(wrong))


def checksum(client: Client, ids: Iterable[int]) -> str:
    """One word for all contents: two runs of one script end with the same.

    >>> client = receive([7], [Delta(1, 7, 1, {"b": 1, "a": 2}), Delta(2, 7, 1, {"a": 1})])
    >>> other = receive([7], [Delta(1, 7, 1, {"a": 1}), Delta(2, 7, 1, {"a": 2, "b": 1})])
    >>> checksum(client, [7]) == checksum(other, [7])
    True
    """
    digest = blake2b(digest_size=8)
    for number in sorted(ids):
        rows = sorted(json.dumps(row, sort_keys=True) for row in client.content(number))
        digest.update(json.dumps([number, rows]).encode())
    return digest.hexdigest()


def conjuncts(predicate: Predicate) -> list[Predicate]:
    """The conditions that AND joins at the top."""
    if isinstance(predicate, And):
        return [part for arg in predicate.args for part in conjuncts(arg)]
    return [predicate]
