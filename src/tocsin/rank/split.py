"""Filters of the rank room, split into ranges, values of columns, and a condition.

    hour BETWEEN 6 AND 9 AND dest > 'M' AND carrier = 'UA' AND (tail LIKE 'N%' OR tail IS NULL)

    ranges       hour 6..9, dest above 'M'        they differ between the subscriptions of a family
    values       carrier 'UA'                     so do these
    condition    tail LIKE 'N%' OR tail IS NULL   it is the same for all of them

Ranges of texts are ranges like others, prefixes (`LIKE 'N%'`) among them. Their ends are codes of texts, as
in flat filters: four times the rank, and one more or less for just above and just below.

A literal that all alternatives of a filter share counts as ANDed, so a constant OR becomes part of the
condition. The order of writing does not matter: attributes are sorted by name, and conditions by their text.

`split_filter` reads one filter, `group_similar` all plans of a template by column. `searched_attribute` says
where one range of several distinguishes the subscriptions of a group.

>>> from tocsin.language.algebra import And, Column, Or
>>> from tocsin.language.rewrite import normalise
>>> risk, per, sector = (Column(name, Type.BIGINT) for name in ("risk", "per", "sector"))
>>> tech = Compare(sector, "=", 7)
>>> found = split_filter(normalise(And((Compare(risk, ">", 3), tech, Between(per, 20, 60)))))
>>> {name: str(form) for name, form in found.ranges.items()}, found.values, found.condition.always
({'per': 'per BETWEEN 20 AND 60', 'risk': 'risk >= 4'}, {'sector': 7}, True)
>>> found = split_filter(normalise(And((Or((tech, Compare(per, "!=", 1))), Compare(risk, ">", 3)))))
>>> [*found.ranges], str(found.condition)
(['risk'], 'per != 1 OR sector = 7')
>>> name = Column("name", Type.STRING)
>>> found = read_ranges([normalise(Compare(name, ">", "b")), normalise(Between(name, "a", "b"))])
>>> found.low.tolist(), found.high.tolist() == [GREATEST, 4], found.texts.to_pylist()
([5, 0], True, [b'a', b'b'])
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tocsin.language.algebra import Between, Compare, Like, Not
from tocsin.language.rewrite import NormalForm
from tocsin.model.columns import Index, Mask
from tocsin.model.schema import Type
from tocsin.predicate.codes import GREATEST, LEAST
from tocsin.predicate.compile import flatten
from tocsin.predicate.flat import OR_NEXT, CodeSpace, FlatFilters
from tocsin.predicate.patterns import LikeForm, read_like
from tocsin.store.plans import FlatPlans

__all__ = [
    *("ALL_ROWS", "SimilarPlans", "SplitFilter"),
    *("conjoined", "group_similar", "literals_of", "read_ranges", "searched_attribute", "split_filter"),
]

ALL_ROWS = NormalForm("dnf", ((),))
"""A condition that all rows pass."""

_MAX_STRUCTURES = 8  # of the plans of a template, that are read by column
_MAX_SEARCHED = 4  # families for the subscriptions of one group
_MIN_MEMBERS = 16  # subscriptions in each of them, on average


class SplitFilter(NamedTuple):
    """By attribute its range; by column its value; and the rest."""

    ranges: dict[str, NormalForm]
    values: dict[str, Any]
    condition: NormalForm


# -- one filter ----------------------------------------------------------------------------------------


def split_filter(form: NormalForm) -> SplitFilter:
    """Split a filter that may hold for some row."""
    common, rest = _common_literals(form)
    columns = [_column(literal) for literal in common]
    ranges: dict[str, NormalForm] = {}
    values: dict[str, Any] = {}
    others = []
    for name in sorted(set(columns)):
        mine = [literal for literal, column in zip(common, columns, strict=True) if column == name]
        own = [literal for literal in mine if _is_range(literal)]
        if len(mine) == 1 and _can_partition(mine[0]):
            values[name] = mine[0].value
        elif own:
            ranges[name] = NormalForm("dnf", (tuple(own),))
            others += [literal for literal in mine if not _is_range(literal)]
        else:
            others += mine
    return SplitFilter(ranges, values, _and(rest, others))


def literals_of(form: NormalForm, name: str) -> list[Any]:
    """The literals of an attribute that a filter ANDs with all others."""
    return [literal for literal in _common_literals(form)[0] if _column(literal) == name]


def conjoined(condition: NormalForm, literals: Iterable[Any]) -> NormalForm:
    """A condition and more literals."""
    common, rest = _common_literals(condition)
    return _and(rest, [*common, *literals])


def _without(form: NormalForm, names: Iterable[str]) -> NormalForm:
    """The condition that is left of a filter without the ANDed literals of some attributes."""
    common, rest = _common_literals(form)
    return _and(rest, [literal for literal in common if _column(literal) not in set(names)])


def _common_literals(form: NormalForm) -> tuple[list[Any], NormalForm]:
    """The literals that are ANDed with all others, and the rest of the filter."""
    if form.kind == "cnf":
        common = [group[0] for group in form.groups if len(group) == 1]
        groups = tuple(group for group in form.groups if len(group) > 1)
        return common, NormalForm("cnf", groups) if groups else ALL_ROWS
    if not form.groups:
        return [], form
    shared = set(form.groups[0]).intersection(*form.groups[1:])
    groups = tuple(tuple(x for x in group if x not in shared) for group in form.groups)
    return [x for x in form.groups[0] if x in shared], NormalForm("dnf", groups)


def _and(rest: NormalForm, literals: Sequence[Any]) -> NormalForm:
    """Both, in an order that does not depend on the order of writing."""
    if rest.kind == "cnf":
        groups = [*rest.groups, *((literal,) for literal in literals)]
    else:
        groups = [(*group, *literals) for group in rest.groups]
    return NormalForm(rest.kind, tuple(sorted((tuple(sorted(g, key=str)) for g in groups), key=str)))


def _is_range(literal: Any) -> bool:
    """Whether the rows that pass the literal are those in a range of codes, or of texts."""
    if isinstance(literal, Not):
        return False
    if isinstance(literal, Like):
        form, text = read_like(literal.pattern)
        return form is LikeForm.PREFIX and bool(text)
    return isinstance(literal, Between) or (isinstance(literal, Compare) and literal.op != "!=")


def _can_partition(literal: Any) -> bool:
    """Whether the literal names a text, or an integer that a BIGINT column may contain."""
    if not isinstance(literal, Compare) or literal.op != "=":
        return False
    value: Any = literal.value
    if literal.column.type is Type.STRING:
        return isinstance(value, str)
    return literal.column.type is Type.BIGINT and type(value) is int and -(2**63) <= value < 2**63


def _column(literal: Any) -> str:
    atom: Any = literal.arg if isinstance(literal, Not) else literal
    return str(atom.column.name)


# -- many filters ----------------------------------------------------------------------------------------


class AttributeRanges(NamedTuple):
    """Ranges of one attribute: their ends as codes, and which are empty; the texts that codes stand for."""

    low: Index
    high: Index
    never: Mask
    texts: Any  # an Arrow array in order; None if the attribute is none of texts


def read_ranges(forms: Iterable[NormalForm]) -> AttributeRanges:
    """The range of each filter; they are conjunctions of ranges of one attribute (`SplitFilter.ranges`)."""
    flat = flatten(forms)
    low, high = np.full(flat.count, LEAST), np.full(flat.count, GREATEST)
    never = np.ones(flat.count, np.bool_)
    never[flat.owner] = False
    owner = np.repeat(flat.owner, flat.sizes)
    np.maximum.at(low, owner, flat.low)
    np.minimum.at(high, owner, flat.high)
    is_text = bool((flat.space == CodeSpace.TEXT).any())
    return AttributeRanges(low, high, never | (low > high), flat.texts if is_text else None)


class SimilarPlans(NamedTuple):
    """Plans that differ in ranges and in the values of some columns; codes by plan, then by attribute."""

    plans: Index
    attributes: tuple[str, ...]  # sorted
    low: Index
    high: Index
    values: dict[str, list[Any]]  # by column, then by plan
    condition: NormalForm
    texts: dict[str, Any]  # by attribute of texts: those that its codes stand for, in order

    def take(self, which: Index) -> SimilarPlans:
        """Some of them."""
        values = {name: [column[i] for i in which.tolist()] for name, column in self.values.items()}
        return self._replace(
            plans=self.plans[which], low=self.low[which], high=self.high[which], values=values
        )


def searched_attribute(group: SimilarPlans) -> tuple[int, list[Index]] | None:
    """The attribute whose ranges distinguish plans where the other ranges are (nearly) the same for all.

    Also the plans by other ranges. None if the ranges of several attributes differ: then plans are boxes.
    """
    count, width = group.low.shape
    best: tuple[int, list[Index]] | None = None
    for at in range(width):
        others = np.delete(np.concatenate([group.low, group.high], axis=1), [at, width + at], axis=1)
        _, number = np.unique(others, axis=0, return_inverse=True)
        number = number.ravel()
        parts = int(number.max(initial=0)) + 1
        few = parts <= _MAX_SEARCHED and parts * _MIN_MEMBERS <= count
        if few and (best is None or parts < len(best[1])):
            best = at, [np.flatnonzero(number == part) for part in range(parts)]
    return best


def group_similar(plans: FlatPlans, which: Index, max_conditions: int) -> Iterator[SimilarPlans]:
    """Plans of a template, read by column and grouped by condition; those not yielded are left.

    Ends of ranges and values of columns are read from the flat filters; the condition, which is the same for
    all plans of a group, is read from the first of them.
    """
    flat = plans.filters[0]
    first = np.searchsorted(flat.owner, np.arange(flat.count + 1))
    for _ in range(_MAX_STRUCTURES):
        if len(which) < 2:
            return
        tests = _Tests.like_first(flat, first, which)
        yield from _similar(plans, which[tests.same], tests, max_conditions)
        which = which[~tests.same]


class _Tests(NamedTuple):
    """The tests of plans that are like the first: the same dimensions and flags, test by test."""

    same: Mask  # which plans
    conjunction: Index  # by test: its conjunction
    dim: Index
    flags: Index
    low: Index  # by plan, then by test
    high: Index

    @classmethod
    def like_first(cls, flat: FlatFilters, first: Index, which: Index) -> _Tests:
        begin, conjunctions = first[which], np.diff(first)[which]
        start = flat.start[begin]
        count = flat.start[begin + conjunctions] - start
        same = (conjunctions == conjunctions[0]) & (count == count[0])
        like = np.flatnonzero(same)
        sizes = flat.sizes[begin[like][:, None] + np.arange(conjunctions[0])]
        at = start[like][:, None] + np.arange(count[0])
        dim, flags = flat.dim[at], flat.flags[at]
        equal = (sizes == sizes[0]).all(axis=1)
        equal &= (dim == dim[0]).all(axis=1) & (flags == flags[0]).all(axis=1)
        same[like[~equal]] = False
        at = at[equal]
        conjunction = np.repeat(np.arange(conjunctions[0]), sizes[0])
        return cls(same, conjunction, dim[0], flags[0], flat.low[at], flat.high[at])

    def common(self) -> Mask:
        """The tests of the first conjunction that are ANDed in it, and stand in all others too."""
        joined = self.flags & OR_NEXT != 0  # part of a clause of alternatives
        joined[1:] |= joined[:-1].copy()
        alone = (self.flags == 0) & ~joined
        out = alone & (self.conjunction == 0)
        for test in np.flatnonzero(out).tolist():
            again = np.flatnonzero(alone & (self.dim == self.dim[test]))
            equal = (self.low[:, again] == self.low[:, [test]]).all(axis=0)
            equal &= (self.high[:, again] == self.high[:, [test]]).all(axis=0)
            found = set(self.conjunction[again[equal]].tolist())
            out[test] = len(found) == len(np.unique(self.conjunction))
        return out

    def repeats(self, test: int) -> Mask:
        """The tests of other conjunctions that are like this one, which is common to all."""
        like = self.dim == self.dim[test]
        like &= (self.low == self.low[:, [test]]).all(axis=0) & (self.high == self.high[:, [test]]).all(
            axis=0
        )
        return like


def _similar(plans: FlatPlans, which: Index, tests: _Tests, max_conditions: int) -> Iterator[SimilarPlans]:
    """Plans with tests of the same dimensions, grouped by condition; none if those are too many."""
    flat = plans.filters[0]
    if len(which) < 2 or not len(tests.dim):
        return
    names = np.array([flat.names[a] for a in flat.attribute[tests.dim].tolist()])
    space, common = flat.space[tests.dim], tests.common()
    others = np.ones(len(names), np.bool_)
    for test in np.flatnonzero(common).tolist():
        others &= ~tests.repeats(test)
    attributes: dict[str, Index] = {}
    columns: dict[str, int] = {}
    for name in sorted(set(names[common].tolist())):
        mine = np.flatnonzero(common & (names == name))
        single, value = len(mine) == 1, bool((tests.low[:, mine] == tests.high[:, mine]).all())
        if name in names[others]:
            return  # further tests of the attribute, which normal forms drop where the range implies them
        if single and value and _is_value(space[mine[0]], tests.low[:, mine[0]]):
            columns[name] = int(mine[0])
        elif np.all(space[mine] <= CodeSpace.BOOLEAN) or _is_text_range(space[mine], tests, mine):
            attributes[name] = mine
        else:
            others[np.isin(names, name)] = True
    if not attributes and not columns:
        return
    yield from _by_condition(plans, which, tests, others, attributes, columns, max_conditions)


def _is_value(space: int, codes: Index) -> bool:
    """Whether codes stand for single values of a column by which rows can be partitioned."""
    return bool(space == CodeSpace.BIGINT or (space == CodeSpace.TEXT and (codes % 4 == 0).all()))


def _is_text_range(space: NDArray[np.uint8], tests: _Tests, mine: Index) -> bool:
    """Whether tests are of texts, and not all of them of any text (IS NOT NULL): that is a condition."""
    bounded = np.any((tests.low[:, mine] != LEAST) | (tests.high[:, mine] != GREATEST))
    return bool(np.all(space == CodeSpace.TEXT) and bounded)


def _by_condition(
    plans: FlatPlans,
    which: Index,
    tests: _Tests,
    others: Mask,
    attributes: dict[str, Index],
    columns: dict[str, int],
    max_conditions: int,
) -> Iterator[SimilarPlans]:
    flat, count = plans.filters[0], len(which)
    fixed = np.concatenate(
        [tests.low[:, others], tests.high[:, others], np.zeros((count, 1), np.int64)], axis=1
    )
    distinct, number = np.unique(fixed, axis=0, return_inverse=True)
    if len(distinct) > max_conditions:
        return
    low, high = np.zeros((2, count, len(attributes)), np.int64)
    for at, mine in enumerate(attributes.values()):
        low[:, at], high[:, at] = tests.low[:, mine].max(axis=1), tests.high[:, mine].min(axis=1)
    possible = (low <= high).all(axis=1)
    spaces = {name: flat.space[tests.dim[mine[0]]] for name, mine in attributes.items()}
    texts = {name: flat.texts for name, space in spaces.items() if space == CodeSpace.TEXT}
    for condition in range(len(distinct)):
        some = np.flatnonzero((number.ravel() == condition) & possible)
        if not len(some):
            continue
        form = plans.plan(int(which[some[0]])).filters[0]
        values = {
            name: _values_of(flat, int(tests.dim[test]), tests.low[some, test])
            for name, test in columns.items()
        }
        rest = _without(form, [*attributes, *columns])
        yield SimilarPlans(which[some], tuple(attributes), low[some], high[some], values, rest, texts)


def _values_of(flat: FlatFilters, dim: int, codes: Index) -> list[Any]:
    """Values of single codes: texts are numbered by fours."""
    if flat.space[dim] != CodeSpace.TEXT:
        return codes.tolist()
    return [text.decode() for text in flat.texts.take(pa.array(codes // 4)).to_pylist()]
