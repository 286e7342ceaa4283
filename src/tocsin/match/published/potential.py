"""Tables that might be, weighed: what would each save?

Every subset of a subscription's equality attributes is the schema of a possible table. A table saves
a subscription the difference between the chance of being checked where it is and under the table's
access predicate. All schemas that occur in some lines are listed once, and weighing all of them again is one
pass over that list, since only where the lines are (`current`) changes:

    schema   {a, b}          {b, c}              gain {a, b} = 0.1 + 0.3
    line      0     2         1                  once 0 and 2 have moved there, weighing again
    saves     0.1   0.3       0.2                tells what {a, b, c} would still add

Cost: O(lines * subsets) numbers; of many lines a sample is taken and counted for all.

F01, section 3.3 (benefit of an additional hashing structure) and section 4 (power). Differs: at most `widest`
attributes per schema, the first eight equalities of a subscription, and the sample.
"""

from __future__ import annotations

import numpy as np

from tocsin.match.published._kernels.potential import move_to, schemas_in, weigh
from tocsin.match.published.clusters import Chances, Schema
from tocsin.match.published.phases import Lines
from tocsin.match.published.predicates import Numbers, Predicates
from tocsin.model.columns import Index, Mask

__all__ = ["Potential"]


class Potential:
    """Possible schemas of some lines; `current` is each line's chance of being checked."""

    def __init__(
        self,
        parts: tuple[Predicates, Lines],
        lines: Numbers,
        current: Chances,
        chances: Chances,
        limits: tuple[int, int],
    ) -> None:
        predicates, store = parts
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
        """Forget the others."""
        entries = np.repeat(schemas, np.diff(self._start))
        sizes = np.diff(self._start)[schemas]
        self._start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self._line, self._product = self._line[entries], self._product[entries]
        self._subset = self._subset[entries]

    def weigh(self) -> tuple[Chances, Chances]:
        """By schema: checks saved per event, and subscriptions that would move."""
        gain, moved = weigh(self._start, self._line, self._product, self._current)
        return gain * self.scale, moved * self.scale

    def take(self, schema: int) -> None:
        """Let the table be: lines that gain are under it from now on."""
        move_to(self._start, self._line, self._product, self._current, schema)

    def schema(self, number: int) -> Schema:
        """The dimensions of a schema."""
        entry = int(self._start[number])
        own = self._store.predicates(int(self._lines[self._line[entry]]))
        dims = list(dict.fromkeys(int(self._groups[q]) >> 3 for q in own if int(self._groups[q]) & 7 == 0))
        subset = int(self._subset[entry])
        return tuple(dim for i, dim in enumerate(dims[:8]) if subset >> i & 1)

    def schemas(self) -> list[Schema]:
        return [self.schema(number) for number in range(len(self))]
