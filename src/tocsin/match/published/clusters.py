"""Clusters of subscriptions under access predicates: storage, statistics, and possible tables; no policy.

A subscription lies in exactly one cluster, under an *access predicate* that it contains: one equality,
or a conjunction of equalities on the attributes of a *table* (its schema), found by hashing. An event
reads only the clusters whose access predicates it satisfies. Within an access, subscriptions with equally
many predicates left to check are stored by column, here three subscriptions with two left each:

    access  color = 'red'      row 0   p12  p40  p12      positions in the predicate bits
                               row 1   p77  p13  p91
                               lines   s1   s7   s9

Subscriptions without an equality lie under access 0, which every event reads. Adding and removing cost
O(predicates); the last subscription of the cluster replaces a removed one.

F01, sections 2.1, 2.4, 3.1 and 3.3. What differs:

    rows       do not repeat the predicates of the access
    chances    nu(p), the probability that an event satisfies p, is estimated here (`EqualityChances`); F01
               leaves this to "an independent tool" (section 4). Equalities are assumed independent
    tables     candidates have at most `widest` attributes, of the first eight equalities of a subscription,
               and are weighed on a sample (`PossibleTables`)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tocsin.match.published._kernels.clusters import (
    ACCESSES,
    CLUSTERS,
    KEY_PREDICATES,
    KEY_TABLE,
    SINGLE,
    UNCONDITIONAL,
    ClusterArrays,
    ClusterIndex,
    LineSource,
    TableArrays,
    access_chances,
    choose,
    current_chances,
    enter,
    leave,
    lines_under,
    move_to,
    rehash,
    schemas_in,
    weigh,
)
from tocsin.match.published._kernels.counting import EQUAL, Blocks
from tocsin.match.published.counting import (
    ConjunctionLines,
    Numbers,
    PredicateStore,
    grow_array,
    grow_blocks,
    new_blocks,
    tighten_blocks,
)
from tocsin.model.columns import Index, Mask

__all__ = ["ChanceConfig", "Chances", "Clusters", "EqualityChances", "PossibleTables", "Schema", "Target"]

Chances = NDArray[np.float64]
Schema = tuple[int, ...]  # dimensions, ascending
Target = tuple[Numbers, Numbers, Chances]  # by line: table, predicate if single, chance of being checked


class Clusters:
    """Lines under access predicates; `widest` is the greatest number of attributes of a schema."""

    arrays: ClusterArrays
    blocks: Blocks
    tables: TableArrays

    def __init__(self, predicates: PredicateStore, lines: ConjunctionLines, widest: int = 1) -> None:
        self._predicates, self._lines, self._widest = predicates, lines, widest
        self.schemas: list[Schema] = []  # by table; () is a free number
        self._reset()
        self._tabulate()

    # -- tables ----------------------------------------------------------------------------------

    def add_tables(self, schemas: Iterable[Schema]) -> None:
        """Adds empty tables."""
        for schema in schemas:
            assert 2 <= len(schema) <= self._widest and list(schema) == sorted(set(schema))
            assert schema not in self.schemas, "a table exists twice"
            if () in self.schemas:
                self.schemas[self.schemas.index(())] = schema
            else:
                self.schemas.append(schema)
        self._tabulate()

    def drop_tables(self, tables: Iterable[int]) -> None:
        """Drops tables; the caller moves the lines under them."""
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
        benefit = grow_array(self.arrays.benefit, len(self.schemas))
        self.arrays = self.arrays._replace(benefit=benefit)

    # -- lines -----------------------------------------------------------------------------------

    def choose(self, lines: Numbers, chances: Chances) -> Target:
        """The best target for each line: the access that events satisfy least often."""
        target: Target = choose(self._source(chances), lines)
        return target

    def enter(self, lines: Numbers, target: Target, chances: Chances) -> None:
        """Stores lines, each under its target."""
        by_line = len(self._lines.arrays.slot)
        self.arrays = self.arrays._replace(
            single=grow_array(self.arrays.single, len(self._predicates.arrays.group), -1),
            cluster=grow_array(self.arrays.cluster, by_line, -1),
            place=grow_array(self.arrays.place, by_line),
        )
        table, pick, _ = target
        done = np.zeros(1, np.int64)
        while True:
            enter(self.arrays, self.blocks, self._source(chances), (lines, table, pick), done)
            if done[0] == len(lines):
                break
            self._grow(int(self._lines.arrays.size[lines].max()))
        self.blocks = tighten_blocks(self.blocks, int(self.arrays.used[CLUSTERS]))

    def leave(self, lines: Numbers) -> None:
        """Removes lines."""
        leave(self.arrays, self.blocks, lines)

    def move(self, lines: Numbers, target: Target, chances: Chances) -> None:
        """Moves lines to other targets."""
        self.leave(lines)
        self.enter(lines, target, chances)
        used = int(self.arrays.used[ACCESSES])
        if used > 1024 and 2 * np.count_nonzero(self.arrays.members[:used]) < used:
            self._sweep(chances)

    def rebuild(self, lines: Numbers, chances: Chances) -> None:
        """Rebuilds everything, each line under its best target."""
        self._reset()
        self._tabulate()
        self.enter(lines, self.choose(lines, chances), chances)

    def _sweep(self, chances: Chances) -> None:
        """Drops accesses without lines."""
        lines = self._lines.alive()
        lines = lines[self.arrays.cluster[lines] >= 0]
        access = self.access_of(lines)
        arrays = self.arrays
        target = (arrays.key[access, KEY_TABLE], arrays.key[access, KEY_PREDICATES], arrays.chance[access])
        self._reset()
        self._tabulate()
        self.enter(lines, target, chances)

    def access_of(self, lines: Numbers) -> Numbers:
        return self.arrays.of[self.arrays.cluster[lines]]

    def under(self, accesses: Numbers) -> Numbers:
        """The lines under some accesses."""
        return lines_under(self.arrays, self.blocks, accesses)

    # -- statistics -----------------------------------------------------------------------------

    def chance_of(self, lines: Numbers) -> Chances:
        """By line: the probability that an event checks it."""
        return current_chances(self.arrays, lines)

    def revalue(self, chances: Chances) -> None:
        """Applies new chances of predicates."""
        access_chances(self.arrays, chances)

    def margins(self, accesses: Numbers | slice = slice(None)) -> Chances:
        """F01's benefit margin, approximated as there by size * nu; 0 for access 0, which cannot improve."""
        used = int(self.arrays.used[ACCESSES])
        margin = (self.arrays.members[:used] * self.arrays.chance[:used])[accesses]
        if isinstance(accesses, slice):
            margin[:1] = 0.0
        else:
            margin[np.asarray(accesses) == 0] = 0.0
        return margin

    def entries(self) -> int:
        """Access predicates of tables that have lines under them."""
        used = int(self.arrays.used[ACCESSES])
        return int(
            np.count_nonzero((self.arrays.key[:used, KEY_TABLE] >= 0) & (self.arrays.members[:used] > 0))
        )

    def numbers(self) -> int:
        """Numbers stored in clusters."""
        of = self.blocks.of[: int(self.arrays.used[CLUSTERS])]
        return int(np.sum(of["count"].astype(np.int64) * of["width"]))

    def count(self) -> int:
        """Clusters with lines in them."""
        return int(np.count_nonzero(self.blocks.of["count"][: int(self.arrays.used[CLUSTERS])]))

    def index(self) -> ClusterIndex:
        """All that matching reads."""
        return ClusterIndex(self.arrays, self.blocks, self.tables, self._lines.arrays.slot)

    def _source(self, chances: Chances) -> LineSource:
        return LineSource(self._lines.arrays, self._predicates.arrays, self.tables, chances)

    def bytes(self) -> int:
        parts = (*self.arrays, *self.blocks, *self.tables)
        return sum(array.nbytes for array in parts)

    # -- inside ----------------------------------------------------------------------------------

    def _reset(self) -> None:
        key = np.full((64, KEY_PREDICATES + self._widest), -1, np.int32)
        key[0, KEY_TABLE] = UNCONDITIONAL
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
        self.blocks = grow_blocks(new_blocks(), 64)

    def _grow(self, size: int) -> None:
        """Grows what is full."""
        c = self.arrays
        accesses, clusters, hashed = (int(n) for n in c.used)
        if accesses == len(c.key):
            c = c._replace(
                key=grow_array(c.key, accesses + 1, -1),
                members=grow_array(c.members, accesses + 1),
                chance=grow_array(c.chance, accesses + 1),
            )
        if 2 * (hashed + 1) > len(c.hashed):
            c = c._replace(hashed=np.full(2 * len(c.hashed), -1, np.int32))
            rehash(c)
        if clusters == len(c.of):
            c = c._replace(of=grow_array(c.of, clusters + 1))
        self.arrays = c
        most = int(self.blocks.of["count"].max(initial=0))
        self.blocks = grow_blocks(self.blocks, len(c.of), 2 * (most + 1) * (size + 1))

    def _check(self) -> None:
        c, blocks = self.arrays, self.blocks
        alive = self._lines.alive()
        members = np.zeros_like(c.members)
        benefit = np.zeros_like(c.benefit)
        for line in alive.tolist():
            b, place = int(c.cluster[line]), int(c.place[line])
            at, _, capacity, width, _ = blocks.of[b].tolist()
            rows = width - 1
            column = blocks.pool[at + place : at + rows * capacity + place + 1 : capacity].tolist()
            assert column[-1] == line, "a line is not where it should be"
            access = int(c.of[b])
            members[access] += 1
            own = [q for q in c.key[access, KEY_PREDICATES:].tolist() if q >= 0]
            assert sorted(own + column[:-1]) == sorted(self._lines.predicates(line))
            assert all(int(self._predicates.arrays.group[q]) & 7 == EQUAL for q in own)
            table = int(c.key[access, KEY_TABLE])
            if table >= 0:
                dims = tuple(int(self._predicates.arrays.group[q]) >> 3 for q in own)
                assert dims == self.schemas[table], "an access differs from its table's schema"
                benefit[table] += 1.0 - c.chance[access]
            else:
                assert len(own) == (1 if table == SINGLE else 0) and (own or access == 0)
        assert np.array_equal(members, c.members) and np.allclose(benefit, c.benefit)
        used = int(c.used[CLUSTERS])
        assert int(np.sum(blocks.of["count"][:used])) == len(alive), "a line is in no cluster, or in two"


# -- statistics of events -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class ChanceConfig:
    """How fast estimates follow the events."""

    weight: float = 16.0  # the prior counts as so many events
    window: int = 2**15  # events after which counts are halved


class EqualityChances:
    """nu(p): the probability that an event satisfies an equality, by predicate.

    Counted from recent events, with a prior for predicates that few events have reached:

        prior(a = v) = P(an event has a) / distinct values that filters compare a with
        nu(a = v)    = (hits + weight * prior) / (events since the predicate was added + weight)

    P(an event has a) is counted from events; before the first, it is the share of conjunctions with a. After
    `window` events all counts are halved, so that old events lose weight.
    """

    def __init__(self, config: ChanceConfig) -> None:
        self._config = config
        self.of = np.zeros(0)  # by predicate
        self.hits = np.zeros(0)  # by predicate: events that satisfied it
        self.present = np.zeros(0)  # by dimension: events that had it
        self.events = 0.0
        self._since = np.zeros(0)  # by predicate: events before it was added
        self._values = np.zeros(0)  # by dimension: distinct equalities
        self._named = np.zeros(0)  # by dimension: equalities of conjunctions
        self._conjunctions = 0
        self._refreshed = 0.0  # events at the last refresh

    def add(self, predicates: PredicateStore, added: Numbers, equalities: Numbers, conjunctions: int) -> None:
        """Counts new conjunctions with these equalities; `added` are the new predicates."""
        count = len(predicates.arrays.group)
        self.of, self.hits, self._since = (grow_array(a, count) for a in (self.of, self.hits, self._since))
        dims = 1 + int(predicates.arrays.group[added].max(initial=-1)) // 8
        self.present, self._values, self._named = (
            grow_array(a, dims) for a in (self.present, self._values, self._named)
        )
        self.hits[added], self._since[added] = 0.0, self.events
        group = predicates.arrays.group[added]
        self._values += np.bincount(group[(group & 7) == EQUAL] >> 3, minlength=len(self._values))
        self._count(predicates, equalities, conjunctions, 1)
        self.of[equalities] = self._chances(predicates, equalities)

    def remove(self, predicates: PredicateStore, equalities: Numbers, conjunctions: int) -> None:
        self._count(predicates, equalities, conjunctions, -1)

    def observe(self, events: int) -> None:
        """Counts events that `hits` and `present` already include."""
        self.events += events
        while self.events > self._config.window:
            self.events /= 2
            self._refreshed /= 2
            for counts in (self.hits, self.present, self._since):
                counts /= 2

    def due(self) -> bool:
        """Whether events have doubled since the last refresh, or half a window of them is new."""
        enough = min(max(64.0, self._refreshed), self._config.window / 2)
        return self.events - self._refreshed >= enough

    def refresh(self, predicates: PredicateStore) -> None:
        """Recomputes all chances."""
        equalities = np.flatnonzero(
            (predicates.arrays.uses[: predicates.used] > 0)
            & ((predicates.arrays.group[: predicates.used] & 7) == EQUAL)
        ).astype(np.int32)
        dims = predicates.arrays.group[equalities] >> 3
        self._values = np.bincount(dims, minlength=len(self._values)).astype(np.float64)
        self.of[equalities] = self._chances(predicates, equalities)
        self._refreshed = self.events

    def values(self) -> NDArray[np.float64]:
        """Distinct equalities by dimension."""
        return np.maximum(self._values, 1.0)

    def presence(self) -> NDArray[np.float64]:
        """By dimension: the probability that an event has it."""
        share = np.minimum(self._named / max(1, self._conjunctions), 1.0)
        weight = self._config.weight
        return (self.present + weight * share) / (self.events + weight)

    def _chances(self, predicates: PredicateStore, equalities: Numbers) -> NDArray[np.float64]:
        weight = self._config.weight
        prior = (self.presence() / self.values())[predicates.arrays.group[equalities] >> 3]
        since = self.events - self._since[equalities]
        return np.minimum((self.hits[equalities] + weight * prior) / (since + weight), 1.0)

    def _count(self, predicates: PredicateStore, equalities: Numbers, conjunctions: int, sign: int) -> None:
        dims = predicates.arrays.group[equalities] >> 3
        self._named += sign * np.bincount(dims, minlength=len(self._named))
        self._conjunctions += sign * conjunctions


# -- possible tables ----------------------------------------------------------------------------------------


class PossibleTables:
    """Tables that could be created for some lines, and the checks that each would save.

    Every subset of a subscription's equality attributes is a possible schema. A table saves a subscription
    the difference between its chance of being checked now (`current`) and under the table's access
    predicate. All schemas of the lines are listed once; weighing them is one pass over that list:

        schema   {a, b}          {b, c}              gain {a, b} = 0.1 + 0.3
        line      0     2         1                  once 0 and 2 have moved there, weighing again
        saves     0.1   0.3       0.2                shows what {a, b, c} would add

    Space: O(lines * subsets), on a sample of the lines if there are many.
    """

    def __init__(
        self,
        stores: tuple[PredicateStore, ConjunctionLines],
        lines: Numbers,
        current: Chances,
        chances: Chances,
        limits: tuple[int, int],
    ) -> None:
        predicates, store = stores
        widest, sample = limits
        self.scale = max(1.0, len(lines) / sample)
        if len(lines) > sample:
            chosen = np.linspace(0, len(lines) - 1, sample).astype(np.int64)
            lines, current = lines[chosen], current[chosen]
        key, line, subset, product = schemas_in(
            store.arrays, predicates.arrays, chances, lines, min(widest, 8)
        )
        order = np.argsort(key, kind="stable")
        key = key[order]
        first = (
            np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]])) if len(key) else np.empty(0, int)
        )
        self._start: Index = np.append(first, len(key)).astype(np.int64)
        self._line, self._product = line[order], product[order]
        self._subset = subset[order]
        self._current = current.astype(np.float64)
        self._groups, self._lines, self._store = predicates.arrays.group, lines, store

    def __len__(self) -> int:
        return len(self._start) - 1

    def keep(self, schemas: Mask) -> None:
        """Drops the other schemas."""
        entries = np.repeat(schemas, np.diff(self._start))
        sizes = np.diff(self._start)[schemas]
        self._start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self._line, self._product = self._line[entries], self._product[entries]
        self._subset = self._subset[entries]

    def weigh(self) -> tuple[Chances, Chances]:
        """By schema: checks saved per event, and the number of subscriptions that would move."""
        gain, moved = weigh(self._start, self._line, self._product, self._current)
        return gain * self.scale, moved * self.scale

    def take(self, schema: int) -> None:
        """Assumes the table exists: moves the lines that gain."""
        move_to(self._start, self._line, self._product, self._current, schema)

    def schema(self, number: int) -> Schema:
        """The dimensions of a schema."""
        entry = int(self._start[number])
        own = self._store.predicates(int(self._lines[self._line[entry]]))
        dims = list(
            dict.fromkeys(int(self._groups[q]) >> 3 for q in own if int(self._groups[q]) & 7 == EQUAL)
        )
        subset = int(self._subset[entry])
        return tuple(dim for i, dim in enumerate(dims[:8]) if subset >> i & 1)

    def schemas(self) -> list[Schema]:
        return [self.schema(number) for number in range(len(self))]
