"""Matching by clusters: check only the subscriptions whose access predicate the event satisfies.

Candidates are the clusters under satisfied access predicates, and under access 0; verification reads the
bits of their remaining predicates. `clusters.py` is the storage; a policy decides which access predicates
exist:

    Propagation          single equalities
    PropagationPrefetch  the same, with prefetched cache lines
    Static               also conjunctions of equalities: tables chosen greedily for the current subscriptions
    Dynamic              the same, maintained as subscriptions and events change

Cost of an event: phase 1 (`counting.py`), one hash look-up per table whose schema the event has, and the
subscriptions checked. Adding or removing one costs O(its predicates + tables on its attributes).

>>> from tocsin.match.coded import CodedConjunctions, CodedEvents
>>> index = Propagation()
>>> tests = ([0, 1, 0, 1], [5, 2, 6, 2], [5, 9, 6, 9], [0] * 4)  # dimension, low, high, flags
>>> index._insert(CodedConjunctions(*map(np.array, ([7, 8], [0, 2, 4], *tests))))
>>> event = CodedEvents(*map(np.array, ([0, 2], [0, 1], [5, 3], [False, False])), 2)
>>> (index._match(event) >> 32).tolist(), index.stats()["checks_per_event"]  # x = 5 AND y BETWEEN 2 AND 9
([7], 1.0)

F01 (Fabret et al., SIGMOD 2001), sections 2 to 4. What differs: margins, chances and powers count all
clusters of an access predicate together; maintenance runs after batches, not after single changes; see also
each class and `clusters.py`.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from tocsin.match.coded import CodedEvents
from tocsin.match.published._kernels.clusters import ACCESSES, KEY_TABLE, match_clusters
from tocsin.match.published._kernels.counting import predicates_of
from tocsin.match.published.clusters import ChanceConfig, Clusters, EqualityChances, PossibleTables, Schema
from tocsin.match.published.counting import Numbers, TwoPhase
from tocsin.model.columns import Index

__all__ = [
    "Clustering",
    "Dynamic",
    "DynamicConfig",
    "Propagation",
    "PropagationPrefetch",
    "Static",
    "StaticConfig",
]


class Clustering(TwoPhase):
    """Stores, matches and counts; a subclass is the policy."""

    _ahead = False  # whether to prefetch cache lines
    _widest = 1  # most attributes of a schema

    def __init__(self, chances: ChanceConfig | None = None) -> None:
        self._chance_config = chances or ChanceConfig()
        super().__init__()

    @abstractmethod
    def _adapt(self, lines: Numbers) -> None:
        """After lines were added: improve the clusters."""

    def _shrink(self) -> None:
        """After lines were removed."""

    def _review(self) -> None:
        """Before events are matched."""

    def _clear(self) -> None:
        super()._clear()
        self._chances = EqualityChances(self._chance_config)
        self._clusters = Clusters(self._predicates, self._lines, self._widest)
        self._events = self._checked = 0

    def _enter_lines(self, lines: Numbers, predicates: Numbers) -> None:
        self._chances.add(self._predicates, predicates, self._equalities(lines), len(lines))
        target = self._clusters.choose(lines, self._chances.of)
        self._clusters.enter(lines, target, self._chances.of)
        self._adapt(lines)

    def _leave_lines(self, lines: Numbers) -> None:
        self._chances.remove(self._predicates, self._equalities(lines), len(lines))
        self._clusters.leave(lines)

    def _delete(self, slots: Index) -> None:
        super()._delete(slots)
        self._shrink()

    def _match(self, events: CodedEvents) -> Index:
        self._review()
        index, seen = self._predicates.index(), (self._chances.hits, self._chances.present)
        packed, checked = match_clusters(
            self._predicates.arrays, index, self._clusters.index(), events, seen, self._ahead
        )
        count = len(events.start) - 1
        self._chances.observe(count)
        self._events += count
        self._checked += checked
        return packed

    @property
    def schemas(self) -> list[Schema]:
        """The schemas of the tables, in dimensions of the index."""
        return sorted(schema for schema in self._clusters.schemas if schema)

    def stats(self) -> dict[str, Any]:
        return {
            **super().stats(),
            "clusters": self._clusters.count(),
            "tables": len(self.schemas),
            "checks_per_event": self._checked / max(1, self._events),
        }

    def _equalities(self, lines: Numbers) -> Numbers:
        return predicates_of(self._lines.arrays, self._predicates.arrays, lines, True)[1]

    def _bytes(self) -> int:
        return super()._bytes() + self._clusters.bytes()

    def _check(self) -> None:
        super()._check()
        self._clusters._check()


class Propagation(Clustering):
    """Places a subscription under the equality that events satisfy least often.

    F01, section 6 ("propagation"), after Pereira et al. The paper does not say which equality to use.
    """

    def _adapt(self, lines: Numbers) -> None:
        pass


class PropagationPrefetch(Propagation):
    """Propagation with prefetching ("propagation-wp").

    Loops run over whole cache lines of 16 numbers and prefetch the rows of a subscription's first two
    predicates, four lines ahead. F01, section 2.3.
    """

    _ahead = True


@dataclass(frozen=True)
class StaticConfig:
    """The cost model of tables. Unit of time: checking one subscription; unit of space: a byte."""

    space: int = 2**30  # for clusters and tables together
    widest: int = 3  # most attributes of a schema
    retrieve: float = 4.0  # time to check that an event has a table's attributes
    hash: float = 16.0  # time to hash one attribute
    table: int = 256  # space of an empty table
    entry: int = 40  # space of an access predicate in a table
    sample: int = 100_000  # subscriptions on which tables are weighed


class Static(Clustering):
    """Chooses tables greedily by benefit per unit of space, for the current subscriptions.

    Starting from single equalities, adds the table with the greatest (checks saved - cost of look-ups) per
    space until none has a benefit or space runs out; a table that also saves space comes first. Runs when
    subscriptions have doubled since the last run, once after the first thousand events, and by `cluster()`.

    F01, section 3. What differs: benefits are weighed on a sample (`PossibleTables`); the number of access
    predicates of a new table is estimated from distinct values, and the last tables are dropped again
    if the true space exceeds the limit.
    """

    _ahead = True
    _enough = 1000  # events for reliable statistics

    def __init__(self, config: StaticConfig | None = None, chances: ChanceConfig | None = None) -> None:
        self.config = config or StaticConfig()
        self._widest = self.config.widest
        super().__init__(chances)

    def _clear(self) -> None:
        super()._clear()
        self._clustered = 0  # subscriptions at the last clustering
        self._informed = False  # whether it had enough events

    def _adapt(self, lines: Numbers) -> None:
        pass

    def _review(self) -> None:
        alive = int(self._clusters.arrays.members.sum())
        informed = self._chances.events >= self._enough
        if alive > 2 * self._clustered or (informed and not self._informed):
            self.cluster()

    def cluster(self) -> None:
        """Chooses all tables again, from current statistics."""
        lines, clusters = self._lines.alive(), self._clusters
        self._chances.refresh(self._predicates)
        clusters.drop_tables(range(len(clusters.schemas)))
        clusters.schemas.clear()
        clusters.rebuild(lines, self._chances.of)
        chosen = self._greedy(lines)
        clusters.add_tables(chosen)
        clusters.rebuild(lines, self._chances.of)
        while self.space() > self.config.space and chosen:
            chosen.pop()
            clusters.schemas.pop()
            clusters.rebuild(lines, self._chances.of)
        self._clustered = len(lines)
        self._informed = self._chances.events >= self._enough

    def space(self) -> int:
        """Bytes of tables, their access predicates, and clusters."""
        tables = self.config.table * len(self.schemas)
        return tables + self.config.entry * self._clusters.entries() + 4 * self._clusters.numbers()

    def _greedy(self, lines: Numbers) -> list[Schema]:
        config, chances = self.config, self._chances
        current = self._clusters.chance_of(lines)
        limits = (config.widest, config.sample)
        possible = PossibleTables((self._predicates, self._lines), lines, current, chances.of, limits)
        possible.keep(possible.weigh()[0] > config.retrieve)  # gains only fall: the others never pay off
        schemas = possible.schemas()
        presence, values = chances.presence(), chances.values()
        there = np.array([np.prod(presence[list(schema)]) for schema in schemas])
        combinations = np.array([np.prod(values[list(schema)]) for schema in schemas])
        width = np.array([len(schema) for schema in schemas], np.float64)
        overhead = config.retrieve + config.hash * width * there
        left = float(config.space - self.space())
        chosen: list[Schema] = []
        while len(schemas):
            gain, moved = possible.weigh()
            benefit = gain - overhead
            entries = combinations * -np.expm1(-moved / combinations)  # expected distinct ones
            space = config.table + config.entry * entries - 4 * moved * (width - 1)
            with np.errstate(divide="ignore"):
                rate = np.where(space > 0, benefit / np.maximum(space, 1.0), np.inf)
            rate[(benefit <= 0) | (space > left)] = -np.inf
            if rate.max() == -np.inf:
                break
            best = int(np.lexsort((benefit, rate))[-1])
            possible.take(best)
            left -= space[best]
            chosen.append(schemas[best])
        return chosen


@dataclass(frozen=True)
class DynamicConfig:
    """Thresholds, in checks per event."""

    margin: float = 2.0  # BM_max: clusters with a greater margin are reorganised
    power: float = 64.0  # B_create: tables that gain as much are created
    least: float = 32.0  # B_min: tables that save less are deleted
    widest: int = 3  # most attributes of a schema
    sample: int = 100_000  # subscriptions on which tables are weighed

    def __post_init__(self) -> None:
        if not 0 <= self.least <= self.power:
            raise ValueError(
                f"least {self.least} must not exceed power {self.power}: new tables would be deleted at once"
            )


class Dynamic(Clustering):
    """Creates and deletes tables as subscriptions and events change.

    A cluster's *margin*, size * nu, is its cost per event. Where it exceeds `margin`

        1  its subscriptions move to better targets among the existing tables, and so on where they arrive;
        2  if it is still too costly, a table that gains at least `power` is created, and so on.

    A table is deleted if its subscriptions would cost less than `least` more without any access predicate;
    they are redistributed. Maintenance runs when subscriptions are added to clusters over the margin, when
    subscriptions are removed, and when enough new events have been counted.

    F01, section 4. What differs: a cluster that cannot be repaired is weighed again when the sum of such
    margins has grown by a tenth, and when chances are refreshed (less and less often while that has no
    effect); the paper keeps powers up to date with every change.
    """

    _ahead = True

    def __init__(self, config: DynamicConfig | None = None, chances: ChanceConfig | None = None) -> None:
        self.config = config or DynamicConfig()
        self._widest = self.config.widest
        super().__init__(chances)

    def _clear(self) -> None:
        super()._clear()
        self._unrepaired = 0.0  # sum of margins over the threshold, when last weighed
        self._created = self._deleted = 0
        self._patience = self._waited = 0  # refreshes to skip before all is weighed again, and skipped

    def _adapt(self, lines: Numbers) -> None:
        accesses = np.unique(self._clusters.access_of(lines))
        if np.any(self._clusters.margins(accesses) > self.config.margin):
            self._repair()

    def _shrink(self) -> None:
        benefit = self._clusters.arrays.benefit
        weak = [
            table
            for table, schema in enumerate(self._clusters.schemas)
            if schema and benefit[table] < self.config.least
        ]
        if weak:
            self._delete_tables(weak)
            self._repair()

    def _review(self) -> None:
        if self._chances.due():
            self._chances.refresh(self._predicates)
            self._clusters.revalue(self._chances.of)
            self._shrink()
            self._weigh_again()

    def _weigh_again(self) -> None:
        """Tries again, with refreshed chances, to repair clusters that could not be repaired."""
        self._waited += 1
        if self._waited > self._patience:
            self._unrepaired, self._waited, self._patience = 0.0, 0, min(64, 2 * self._patience + 1)
        self._repair()

    def _delete_tables(self, tables: list[int]) -> None:
        clusters = self._clusters
        used = int(clusters.arrays.used[ACCESSES])
        accesses = np.flatnonzero(np.isin(clusters.arrays.key[:used, KEY_TABLE], tables)).astype(np.int32)
        lines = clusters.under(accesses)
        clusters.drop_tables(tables)
        clusters.move(lines, clusters.choose(lines, self._chances.of), self._chances.of)
        clusters.arrays.benefit[tables] = 0.0
        self._deleted += len(tables)

    def _excessive(self) -> tuple[Numbers, float]:
        """Accesses whose benefit margin exceeds `config.margin`, and the sum of their margins."""
        margins = self._clusters.margins()
        over = np.flatnonzero(margins > self.config.margin).astype(np.int32)
        return over, float(margins[over].sum())

    def _repair(self) -> None:
        accesses, margins = self._excessive()
        if margins > 1.1 * self._unrepaired:
            self._clusters.revalue(self._chances.of)  # so that no line seems to gain by staying
            self._redistribute(accesses)
            rest, _ = self._excessive()
            if len(rest) and (schemas := self._powerful(rest)):
                self._clusters.add_tables(schemas)
                self._created += len(schemas)
                self._patience = 0
                self._redistribute(rest)
            _, self._unrepaired = self._excessive()
        self._unrepaired = min(self._unrepaired, margins)

    def _redistribute(self, accesses: Numbers) -> None:
        """Step 1: moves lines under the accesses to better targets, and so on where they arrive."""
        clusters = self._clusters
        while len(accesses):
            lines = clusters.under(accesses)
            table, pick, chance = clusters.choose(lines, self._chances.of)
            better = chance < clusters.chance_of(lines) * (1 - 1e-9)
            lines = lines[better]
            clusters.move(lines, (table[better], pick[better], chance[better]), self._chances.of)
            arrived = np.unique(clusters.access_of(lines))
            accesses = arrived[clusters.margins(arrived) > self.config.margin]

    def _powerful(self, accesses: Numbers) -> list[Schema]:
        """Step 2: schemas of tables worth creating for the lines under the accesses."""
        lines = self._clusters.under(accesses)
        limits = (self.config.widest, self.config.sample)
        current = self._clusters.chance_of(lines)
        possible = PossibleTables((self._predicates, self._lines), lines, current, self._chances.of, limits)
        chosen: list[Schema] = []
        while True:
            power = possible.weigh()[0]
            possible.keep(power >= self.config.power)  # powers only fall
            power = power[power >= self.config.power]
            if not len(power):
                return chosen
            best = int(power.argmax())
            chosen.append(possible.schema(best))
            possible.take(best)

    def stats(self) -> dict[str, Any]:
        return {**super().stats(), "tables_created": self._created, "tables_deleted": self._deleted}
