"""Plans: which tables to empty when, so that a refresh takes no longer than the limit at any time.

Changes wait by table. A *valid set* of tables is one after whose propagation the rest can be refreshed within
the limit. Minimal valid sets are what plans and policies choose from: emptying a table early costs its set-up
once more, and leaving it out keeps its changes together.

>>> from tocsin.limits.costs import Costs, Linear
>>> minimal_valid_sets(Costs((Linear(1, 0), Linear(1, 0), Linear(2, 1))), (4, 3, 2), limit=8)
[(0,), (2,)]

With arrivals known, `best_plan` finds the cheapest plan that acts only when the limit breaks (lazy), empties
tables whole (greedy), and no more of them than needed (minimal). Such a plan costs at most twice the best of
all plans, and no more than it if costs are linear. A* over states (time, waiting) at which the limit breaks:

    edges      the minimal valid sets; at the last time, everything
    remaining  for each table by itself: what waits and will arrive, in the fewest batches that the limit
               allows. Never too high, and consistent: no state is expanded twice

>>> plan = best_plan(Costs((Linear(0.35, 0.5), Linear(0.01, 5.0))), [(1, 1)] * 60, limit=12.0)
>>> round(plan.cost, 2), plan.actions
(28.6, ((18, (0,)), (36, (0,)), (54, (0,)), (59, (0, 1))))

T07, sections 2.2 to 2.4. There a batch is at most what breaks the limit, which is too small if several
changes arrive at once, and batches are counted by division, which is too much for costs that are not concave:
both found plans that were not the best. Cost: in practice some states per action of the plan.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, combinations, count, pairwise
from typing import NamedTuple

import numpy as np

from tocsin.errors import UsageError
from tocsin.limits.costs import Cost, Costs, Counts, fits

__all__ = ["PlanSearch", "RefreshPlan", "best_plan", "cheapest_valid_set", "minimal_valid_sets", "spread"]

TableSet = tuple[int, ...]
_State = tuple[int, Counts]  # time, waiting
_TABLES = 8  # with changes, among whose subsets to choose
_SLACK = 1e-9
_MOST_COUNTS = 4096  # of a table, up to which the least cost of so many changes is tabulated


def minimal_valid_sets(costs: Costs, waiting: Counts, limit: float) -> list[TableSet]:
    """The valid sets none of whose subsets is valid; by size, then by table.

    O(2^n) for n <= 8 tables with changes; of more, the cheapest beyond the eight are emptied together. `[()]`
    if nothing need be emptied.
    """
    blocks = _blocks(costs, waiting)
    each = [sum(costs.each[i](waiting[i]) for i in block) for block in blocks]
    sizes, total = [len(block) for block in blocks], sum(each)
    found: list[frozenset[int]] = []
    for size in range(len(blocks) + 1):
        for chosen in combinations(range(len(blocks)), size):
            members = frozenset(chosen)
            if any(smaller <= members for smaller in found):
                continue
            left = sum(sizes) - sum(sizes[b] for b in chosen)
            rest = max(0.0, total - sum(each[b] for b in chosen))
            if fits(costs.together(rest, left), limit):
                found.append(members)
    return [tuple(sorted(i for b in members for i in blocks[b])) for members in found]


def cheapest_valid_set(costs: Costs, waiting: Counts, limit: float, within: TableSet = ()) -> TableSet:
    """The valid set of least cost that contains some tables; the first by table if several have it.

    >>> from tocsin.limits.costs import Linear
    >>> cheapest_valid_set(Costs((Linear(1, 0), Linear(1, 0))), (4, 5), limit=5)
    (0,)
    """
    rest = tuple(0 if i in within else count for i, count in enumerate(waiting))
    sets = minimal_valid_sets(costs, rest, limit)
    best = min(sets, key=lambda tables: (costs.action(tables, rest), tables))
    return tuple(sorted({*best, *(i for i in within if waiting[i])}))


def _blocks(costs: Costs, waiting: Counts) -> list[TableSet]:
    """The tables with changes, one by one; beyond eight, the cheapest together."""
    tables = [i for i, count in enumerate(waiting) if count]
    if len(tables) <= _TABLES:
        return [(i,) for i in tables]
    by_cost = sorted(tables, key=lambda i: (-costs.each[i](waiting[i]), i))
    return [(i,) for i in by_cost[: _TABLES - 1]] + [tuple(sorted(by_cost[_TABLES - 1 :]))]


# -- plans ----------------------------------------------------------------------------------------------


class RefreshPlan(NamedTuple):
    """Actions in order: the time, and the tables to empty; the last one empties what is left.

    A plan that is not `complete` ends before the last time, since the search was cut short.
    """

    cost: float
    actions: tuple[tuple[int, TableSet], ...]
    expanded: int  # states
    complete: bool = True


def best_plan(
    costs: Costs, arrivals: Sequence[Counts], limit: float, most_expanded: int | None = None
) -> RefreshPlan:
    """The cheapest lazy, greedy and minimal plan. `arrivals[0]` waits already; the last time empties all.

    After `most_expanded` states the most promising beginning is returned instead.
    """
    search = PlanSearch(costs, arrivals, limit)
    start = search.advance(0, tuple(arrivals[0]))
    spent: dict[_State | None, float] = {start: 0.0}
    back: dict[_State | None, tuple[_State, TableSet]] = {}
    closed: set[_State | None] = set()
    order = count()
    heap: list[tuple[float, int, int, _State | None]] = [(search.remaining(start), 0, next(order), start)]
    while heap:
        _, _, _, state = heapq.heappop(heap)
        if state in closed:
            continue
        if state is None or (len(closed) == most_expanded and state != start):
            return RefreshPlan(spent[state], _path(back, state), len(closed), state is None)
        closed.add(state)
        for cost, tables, following in search.edges(state):
            total = spent[state] + cost
            if total < spent.get(following, np.inf) - 1e-12:
                spent[following], back[following] = total, (state, tables)
                ahead = 0.0 if following is None else search.remaining(following)
                time = search.last + 1 if following is None else following[0]
                heapq.heappush(heap, (total + ahead, -time, next(order), following))
    raise AssertionError("the end can be reached from every state")


def _path(
    back: dict[_State | None, tuple[_State, TableSet]], state: _State | None
) -> tuple[tuple[int, TableSet], ...]:
    actions: list[tuple[int, TableSet]] = []
    while state in back:
        state, tables = back[state]
        actions.append((state[0], tables))
    return tuple(reversed(actions))


class PlanSearch:
    """The graph that `best_plan` searches: states at which the limit breaks; the bound of what remains."""

    def __init__(self, costs: Costs, arrivals: Sequence[Counts], limit: float) -> None:
        if not arrivals or any(len(counts) != len(costs) for counts in arrivals):
            raise UsageError("a plan needs arrivals of each table, for one time at least")
        self.costs, self.limit, self.last = costs, limit, len(arrivals) - 1
        by_table = list(zip(*arrivals, strict=True))
        self._until = [list(accumulate(counts)) for counts in by_table]  # arrivals by table and time
        self._each = [_known(cost, sum(counts)) for cost, counts in zip(costs.each, by_table, strict=True)]
        self._bounds = [
            _BatchBound(cost, sum(counts), _largest_batch(costs, cost, limit, counts))
            for cost, counts in zip(costs.each, by_table, strict=True)
        ]

    def advance(self, time: int, waiting: Counts) -> _State:
        """The first time from this on at which the limit breaks, or the last, and what waits then."""
        last, limit, costs = self.last, self.limit + _SLACK, self.costs
        least, joint, reserve = costs.recompute, costs.joint, costs.reserve
        tables = [
            (waits - until[time], until, cost)
            for waits, until, cost in zip(waiting, self._until, self._each, strict=True)
        ]

        def holds(later: int) -> bool:
            total, several = 0.0, -1
            for waits, until, cost in tables:
                if waiting_then := waits + until[later]:
                    total, several = total + cost(waiting_then), several + 1
            if several > 0:
                total += joint
            return min(least, reserve * total) <= limit

        if time == last or not holds(time):
            return time, waiting
        step, low = 1, time
        while low + step < last and holds(low + step):
            low, step = low + step, 2 * step
        high = min(low + step, last)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if holds(middle) else (low, middle)
        return high, self._later(high, time, waiting)

    def edges(self, state: _State) -> Iterator[tuple[float, TableSet, _State | None]]:
        """What may be done in a state: its cost, the tables, and the next state; None is the end."""
        time, waiting = state
        anew = self.costs.recompute
        everything = tuple(i for i, waits in enumerate(waiting) if waits)
        if time == self.last:
            yield min(anew, self.costs.action(everything, waiting)), everything, None
            return
        sets = minimal_valid_sets(self.costs, waiting, self.limit)
        for tables in sets if everything in sets or anew == np.inf else [*sets, everything]:
            cost = min(anew, self.costs.action(tables, waiting))
            empty = everything if cost == anew else tables
            rest = tuple(0 if i in empty else waits for i, waits in enumerate(waiting))
            yield cost, empty, self.advance(time + 1, self._later(time + 1, time, rest))

    def remaining(self, state: _State) -> float:
        """What is left to be paid from a state on, at least."""
        time, waiting = state
        total = 0.0
        for waits, until, bound in zip(waiting, self._until, self._bounds, strict=True):
            total += bound(waits + until[-1] - until[time])
        return min(total, self.costs.recompute)

    def _later(self, time: int, since: int, waiting: Counts) -> Counts:
        if time == since:
            return waiting
        return tuple([w + until[time] - until[since] for w, until in zip(waiting, self._until, strict=True)])


def _known(cost: Cost, changes: int) -> Callable[[int], float]:
    """The same function for so many changes, as a table if there are few."""
    if changes > _MOST_COUNTS:
        return cost
    return [cost(count) for count in range(changes + 1)].__getitem__


def _largest_batch(costs: Costs, cost: Cost, limit: float, arriving: Sequence[int]) -> int:
    """The most changes of a table that ever wait: what the limit allows, and what arrives at once."""
    allowed, changes = limit / costs.reserve, sum(arriving)
    if fits(costs.recompute, limit) or fits(cost(changes), allowed):
        return max(1, changes)
    return cost.most(allowed) + max(1, *arriving)


class _BatchBound:
    """The least cost of n changes of one table, in batches of at most so many.

    Concave costs are least in the fewest batches, as full as possible; others are tabulated,
    h(n) = min over j of f(j) + h(n - j), or bounded by the least cost per change if there are too many.
    """

    def __init__(self, cost: Cost, changes: int, largest: int) -> None:
        self._cost, self._largest = cost, max(1, min(largest, changes))
        self._full = cost(self._largest)
        self._table: list[float] | None = None
        self._least = 0.0  # per change
        if not cost.concave:
            batches = np.array([cost(j) for j in range(min(self._largest, _MOST_COUNTS) + 1)])
            self._least = float(np.min(batches[1:] / np.arange(1, len(batches))))
            if changes <= _MOST_COUNTS:
                self._table = _tabulated(batches, changes)
            elif self._largest > _MOST_COUNTS:
                self._least = 0.0

    def __call__(self, changes: int) -> float:
        if self._table is not None:
            return self._table[changes]
        if not self._cost.concave:
            return self._least * changes
        full, rest = divmod(changes, self._largest)
        return full * self._full + (self._cost(rest) if rest else 0.0)


def _tabulated(batches: np.ndarray, changes: int) -> list[float]:
    found = np.zeros(changes + 1)
    for n in range(1, changes + 1):
        first = max(0, n - len(batches) + 1)
        found[n] = np.min(batches[1 : n - first + 1] + found[first:n][::-1])
    return [float(value) for value in found]


def spread(rates: Sequence[float], steps: int, first: Counts) -> list[Counts]:
    """Arrivals at constant rates per step: `first` waits already.

    >>> spread((1.0, 0.4), 5, (7, 7))
    [(7, 7), (1, 0), (1, 0), (1, 1), (1, 0), (1, 1)]
    """
    until = [tuple(int(rate * step + 1e-9) for rate in rates) for step in range(steps + 1)]
    return [first] + [
        tuple(now - before for now, before in zip(later, earlier, strict=True))
        for earlier, later in pairwise(until)
    ]
