"""Clusters of subscriptions, reached through access predicates: the storage, without a policy.

A subscription lies in exactly one cluster, under an *access predicate* that it contains: one equality,
or a conjunction of equalities on the attributes of a *table* (its schema), found by hashing. An event
reads only the clusters whose access predicates it satisfies. Within an access, subscriptions with equally
many predicates left to check lie column-wise, here three subscriptions with two left each:

    access  color = 'red'      row 0   p12  p40  p12      positions in the predicate bits
                               row 1   p77  p13  p91
                               lines   s1   s7   s9

Subscriptions without an equality lie under access 0, which is always read. Putting in and taking out cost
O(predicates); a taken-out one is replaced by the last of its cluster.

F01, sections 2.1, 2.4 and 3.1. Predicates of the access itself are not stored again in the rows.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from tocsin.match.published._kernels.blocks import Blocks
from tocsin.match.published._kernels.clusters import (
    ALWAYS,
    SINGLE,
    ClusterArrays,
    TableArrays,
    access_chances,
    best_access,
    choose,
    enter,
    leave,
    lines_under,
    rehash,
)
from tocsin.match.published._kernels.predicates import EQUAL
from tocsin.match.published.phases import Lines, new_blocks, roomier_blocks, tight_blocks
from tocsin.match.published.predicates import Numbers, Predicates, roomier

__all__ = ["Chances", "Clusters", "Schema", "Spot"]

Chances = NDArray[np.float64]
Schema = tuple[int, ...]  # dimensions, ascending
Spot = tuple[Numbers, Numbers, Chances]  # by line: table, predicate if single, chance of being checked


class Clusters:
    """Lines under access predicates; `widest` is the greatest number of attributes of a schema."""

    arrays: ClusterArrays
    blocks: Blocks
    tables: TableArrays

    def __init__(self, predicates: Predicates, lines: Lines, widest: int = 1) -> None:
        self._predicates, self._lines, self._widest = predicates, lines, widest
        self.schemas: list[Schema] = []  # by table; an empty one is free
        self._reset()
        self._tabulate()

    # -- tables ----------------------------------------------------------------------------------

    def add_tables(self, schemas: Iterable[Schema]) -> None:
        """More tables, empty ones."""
        for schema in schemas:
            assert 2 <= len(schema) <= self._widest and list(schema) == sorted(set(schema))
            assert schema not in self.schemas, "a table is there once"
            if () in self.schemas:
                self.schemas[self.schemas.index(())] = schema
            else:
                self.schemas.append(schema)
        self._tabulate()

    def drop_tables(self, tables: Iterable[int]) -> None:
        """Fewer tables; what was under them must be moved."""
        for table in tables:
            self.schemas[table] = ()
        self._tabulate()

    def _tabulate(self) -> None:
        sizes = [len(schema) for schema in self.schemas]
        dims = np.array([dim for schema in self.schemas for dim in schema], np.int32)
        first = np.array([schema[0] if schema else -1 for schema in self.schemas], np.int64)
        order = np.argsort(first, kind="stable")[int(np.count_nonzero(first < 0)) :]
        counts = np.bincount(first[order], minlength=int(dims.max(initial=0)) + 1)
        self.tables = TableArrays(
            np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            dims,
            np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            order.astype(np.int32),
        )
        benefit = roomier(self.arrays.benefit, len(self.schemas))
        self.arrays = self.arrays._replace(benefit=benefit)

    # -- lines -----------------------------------------------------------------------------------

    def choose(self, lines: Numbers, chances: Chances) -> Spot:
        """The best place for each line: the access that an event satisfies least often."""
        return choose(self._lines.arrays, self._predicates.arrays, self.tables, chances, lines)

    def enter(self, lines: Numbers, spot: Spot, chances: Chances) -> None:
        """Put lines in, each where it shall be."""
        by_line = len(self._lines.arrays.slot)
        self.arrays = self.arrays._replace(
            single=roomier(self.arrays.single, len(self._predicates.arrays.group), -1),
            cluster=roomier(self.arrays.cluster, by_line, -1),
            place=roomier(self.arrays.place, by_line),
        )
        table, pick, _ = spot
        done = np.zeros(1, np.int64)
        while True:
            parts = (self._lines.arrays, self._predicates.arrays, self.tables, chances)
            enter(self.arrays, self.blocks, *parts, (lines, table, pick), done)
            if done[0] == len(lines):
                break
            self._grow(int(self._lines.arrays.size[lines].max()))
        self.blocks = tight_blocks(self.blocks, int(self.arrays.used[1]))

    def leave(self, lines: Numbers) -> None:
        leave(self.arrays, self.blocks, lines)

    def move(self, lines: Numbers, spot: Spot, chances: Chances) -> None:
        """Take lines out and put them in elsewhere."""
        self.leave(lines)
        self.enter(lines, spot, chances)
        used = int(self.arrays.used[0])
        if used > 1024 and 2 * np.count_nonzero(self.arrays.members[:used]) < used:
            self._sweep(chances)

    def rebuild(self, lines: Numbers, chances: Chances) -> None:
        """All lines anew, each in its best place."""
        self._reset()
        self._tabulate()
        self.enter(lines, self.choose(lines, chances), chances)

    def _sweep(self, chances: Chances) -> None:
        """Get rid of accesses without lines."""
        lines = self._lines.alive()
        lines = lines[self.arrays.cluster[lines] >= 0]
        access = self.access_of(lines)
        arrays = self.arrays
        spot = (arrays.key[access, 0], arrays.key[access, 2], arrays.chance[access])
        self._reset()
        self._tabulate()
        self.enter(lines, spot, chances)

    def access_of(self, lines: Numbers) -> Numbers:
        return self.arrays.of[self.arrays.cluster[lines]]

    def under(self, accesses: Numbers) -> Numbers:
        """The lines under some accesses."""
        return lines_under(self.arrays, self.blocks, accesses)

    # -- how good it is --------------------------------------------------------------------------

    def chance_of(self, lines: Numbers) -> Chances:
        """How likely each line is to be checked."""
        return best_access(self.arrays, lines)

    def revalue(self, chances: Chances) -> None:
        """New chances of predicates have come."""
        access_chances(self.arrays, chances)

    def margins(self, accesses: Numbers | slice = slice(None)) -> Chances:
        """F01's benefit margin, approximated as there by size * nu; that of access 0 cannot be had."""
        used = int(self.arrays.used[0])
        margin = (self.arrays.members[:used] * self.arrays.chance[:used])[accesses]
        if isinstance(accesses, slice):
            margin[:1] = 0.0
        else:
            margin[np.asarray(accesses) == 0] = 0.0
        return margin

    def entries(self) -> int:
        """Access predicates of tables that have lines under them."""
        used = int(self.arrays.used[0])
        return int(np.count_nonzero((self.arrays.key[:used, 0] >= 0) & (self.arrays.members[:used] > 0)))

    def numbers(self) -> int:
        """Numbers stored in clusters."""
        of = self.blocks.of[: int(self.arrays.used[1])]
        return int(np.sum(of["count"].astype(np.int64) * of["width"]))

    def count(self) -> int:
        """Clusters with lines in them."""
        return int(np.count_nonzero(self.blocks.of["count"][: int(self.arrays.used[1])]))

    def bytes(self) -> int:
        parts = (*self.arrays, *self.blocks, *self.tables)
        return sum(array.nbytes for array in parts)

    # -- inside ----------------------------------------------------------------------------------

    def _reset(self) -> None:
        key = np.full((64, 2 + self._widest), -1, np.int32)
        key[0, 0] = ALWAYS
        self.arrays = ClusterArrays(
            key=key,
            members=np.zeros(64, np.int32),
            chance=np.ones(64),
            single=np.empty(0, np.int32),
            hashed=np.full(256, -1, np.int32),
            of=np.zeros(64, np.int32),
            cluster=np.empty(0, np.int32),
            place=np.empty(0, np.int32),
            benefit=np.zeros(0),
            used=np.array([1, 0, 0]),
        )
        self.blocks = roomier_blocks(new_blocks(), 64)

    def _grow(self, size: int) -> None:
        """More room where there is none."""
        c = self.arrays
        accesses, clusters, hashed = (int(n) for n in c.used)
        if accesses == len(c.key):
            c = c._replace(
                key=roomier(c.key, accesses + 1, -1),
                members=roomier(c.members, accesses + 1),
                chance=roomier(c.chance, accesses + 1),
            )
        if 2 * (hashed + 1) > len(c.hashed):
            c = c._replace(hashed=np.full(2 * len(c.hashed), -1, np.int32))
            rehash(c)
        if clusters == len(c.of):
            c = c._replace(of=roomier(c.of, clusters + 1))
        self.arrays = c
        most = int(self.blocks.of["count"].max(initial=0))
        self.blocks = roomier_blocks(self.blocks, len(c.of), 2 * (most + 1) * (size + 1))

    def _check(self) -> None:
        c, blocks = self.arrays, self.blocks
        alive = self._lines.alive()
        members = np.zeros_like(c.members)
        benefit = np.zeros_like(c.benefit)
        for line in alive.tolist():
            b, place = int(c.cluster[line]), int(c.place[line])
            at, _, room, width, _ = blocks.of[b].tolist()
            rows = width - 1
            column = blocks.pool[at + place : at + rows * room + place + 1 : room].tolist()
            assert column[-1] == line, "a line is where it is said to be"
            access = int(c.of[b])
            members[access] += 1
            own = [q for q in c.key[access, 2:].tolist() if q >= 0]
            assert sorted(own + column[:-1]) == sorted(self._lines.predicates(line))
            assert all(int(self._predicates.arrays.group[q]) & 7 == EQUAL for q in own)
            table = int(c.key[access, 0])
            if table >= 0:
                dims = tuple(int(self._predicates.arrays.group[q]) >> 3 for q in own)
                assert dims == self.schemas[table], "an access has its table's schema"
                benefit[table] += 1.0 - c.chance[access]
            else:
                assert len(own) == (1 if table == SINGLE else 0) and (own or access == 0)
        assert np.array_equal(members, c.members) and np.allclose(benefit, c.benefit)
        used = int(c.used[1])
        assert int(np.sum(blocks.of["count"][:used])) == len(alive), "a line is in one cluster"
