"""Conditions in normal form: a list of conjunctions, or a list of clauses.

`RULES` are pure functions from condition to condition, applied in order until nothing changes.
The first ones remove NULL from comparisons and push NOT down to the atoms. After that each NOT applies to
one atom, so the formula is monotone: making an unknown atom false can only turn an
unknown answer into false, and neither is delivered. Hence "unknown" may be treated as "false",
and the remaining rules are those of ordinary logic, with one exception: `x > 3 OR x <= 3` is not
TRUE but `x IS NOT NULL`.

>>> from tocsin.language.algebra import Column
>>> x, y = Column("x", Type.BIGINT), Column("y", Type.STRING)
>>> print(normalise(Not(Or((Compare(x, "<", 3), Compare(x, ">", 5), Like(y, "ab"))))))
x BETWEEN 3 AND 5 AND y != 'ab'
>>> normalise(And((Compare(x, "<", 3), Compare(x, ">", 5)))).never
True

Conjunctions and clauses are counted before anything is multiplied out, so a condition over the cap
costs no more than one under it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Literal as Word

from tocsin.errors import NormalFormError
from tocsin.language.algebra import (
    And,
    Between,
    Compare,
    In,
    IsNull,
    IsTrue,
    Like,
    Not,
    Or,
    Predicate,
    Truth,
    atoms,
    is_true,
)
from tocsin.language.nested import presence
from tocsin.language.ranges import Literal, intersect, kind_of, unite
from tocsin.model.schema import Type

__all__ = [
    "CAP", "RULES", "Literal", "NormalForm", "alternatives", "compact_form", "normalise", "rewrite",
]  # fmt: skip

CAP = 256
"""The maximum number of conjunctions (or, failing that, clauses) of a normal form."""

FEW, MOST_GROUPS = 32, 4 * CAP  # of `compact_form`: conjunctions, or else clauses

_LONG = 64  # values of an IN: normal forms of longer ones are not remembered

_NEGATED = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_FALSE, _TRUE, _UNKNOWN = Truth(False), Truth(True), Truth(None)


def _map(predicate: Predicate, leaf: Callable[[Predicate], Predicate]) -> Predicate:
    """Apply `leaf` to each atom and constant of a condition."""
    if isinstance(predicate, And):
        return And(tuple(_map(arg, leaf) for arg in predicate.args))
    if isinstance(predicate, Or):
        return Or(tuple(_map(arg, leaf) for arg in predicate.args))
    if isinstance(predicate, Not):
        return Not(_map(predicate.arg, leaf))
    return leaf(predicate)


# -- rules -----------------------------------------------------------------------------------------


def split_mixed_kinds(predicate: Predicate) -> Predicate:
    """`x = NULL` is unknown; BETWEEN and IN with a NULL, or with values of several kinds, are split."""

    def leaf(atom: Predicate) -> Predicate:
        if isinstance(atom, Compare) and atom.value is None:
            return _UNKNOWN
        if isinstance(atom, Between) and (
            kind_of(atom.low) is None or kind_of(atom.low) != kind_of(atom.high)
        ):
            return And(
                (leaf(Compare(atom.column, ">=", atom.low)), leaf(Compare(atom.column, "<=", atom.high)))
            )
        if isinstance(atom, In):
            by_type = {type(value): value for value in atom.values}  # the kind depends on the type alone
            kinds = dict.fromkeys(kind_of(value) for value in by_type.values())
            if len(kinds) > 1 or None in kinds:
                parts = {k: tuple(v for v in atom.values if kind_of(v) == k) for k in kinds}
                return Or(tuple(_UNKNOWN if k is None else In(atom.column, v) for k, v in parts.items()))
        return atom

    return _map(predicate, leaf)


def simplify_like(predicate: Predicate) -> Predicate:
    """LIKE without a wildcard becomes `=`; LIKE '%' becomes IS NOT NULL."""

    def leaf(atom: Predicate) -> Predicate:
        if not isinstance(atom, Like):
            return atom
        if atom.column.type is Type.STRING and re.fullmatch("%+", atom.pattern):
            return Compare(atom.column, ">=", "")  # any text; merge_ranges turns it into IS NOT NULL
        if re.search(r"(?<!\\)(?:\\\\)*[%_]", atom.pattern):
            return atom
        return Compare(atom.column, "=", re.sub(r"\\(.)", r"\1", atom.pattern, flags=re.DOTALL))

    return _map(predicate, leaf)


def find_elements(predicate: Predicate) -> Predicate:
    """The truth of an `exists` by the presence of an attribute; NOT is above atoms only."""
    if isinstance(predicate, And | Or):
        return type(predicate)(tuple(map(find_elements, predicate.args)))
    return presence(predicate)


def push_not(predicate: Predicate) -> Predicate:
    """Push NOT down to the atoms; comparisons are inverted, and unknown stays unknown."""
    if isinstance(predicate, And):
        return And(tuple(map(push_not, predicate.args)))
    if isinstance(predicate, Or):
        return Or(tuple(map(push_not, predicate.args)))
    if isinstance(predicate, IsTrue):  # what is not true is not delivered
        return push_not(split_mixed_kinds(predicate.arg))
    if not isinstance(predicate, Not):
        return predicate
    inner = predicate.arg
    if isinstance(inner, IsTrue):
        return _not_true(inner)
    if isinstance(inner, Not):
        return push_not(inner.arg)
    if isinstance(inner, And):
        return Or(tuple(push_not(Not(arg)) for arg in inner.args))
    if isinstance(inner, Or):
        return And(tuple(push_not(Not(arg)) for arg in inner.args))
    if isinstance(inner, Truth):
        return Truth(None if inner.value is None else not inner.value)
    if isinstance(inner, Compare):
        return Compare(inner.column, _NEGATED[inner.op], inner.value)
    return predicate


def _not_true(atom: IsTrue) -> Predicate:
    """NOT ... IS TRUE, of an atom without NULLs and constants of several kinds inside."""
    inner = push_not(split_mixed_kinds(atom.arg))
    if isinstance(inner, And | Or):
        parts = tuple(_not_true(IsTrue(arg)) for arg in inner.args)  # type: ignore[arg-type]
        return Or(parts) if isinstance(inner, And) else And(parts)
    if isinstance(inner, Truth):
        return Truth(inner.value is not True)
    inner = presence(simplify_like(inner))
    if isinstance(inner, And | Or):
        return push_not(Not(is_true(inner)))
    if isinstance(inner, Truth):
        return Truth(inner.value is not True)
    if isinstance(inner, IsNull) or (isinstance(inner, Not) and isinstance(inner.arg, IsNull)):
        return push_not(Not(inner))
    return Not(IsTrue(inner))


def drop_unknown(predicate: Predicate) -> Predicate:
    """Replace unknown by false; valid because NOT occurs only directly above atoms."""
    return _map(predicate, lambda atom: _FALSE if atom == _UNKNOWN else atom)


def flatten(predicate: Predicate) -> Predicate:
    """Flatten AND in AND and OR in OR; drop constants and duplicates."""
    if isinstance(predicate, And):
        return _connect(And, _FALSE, _TRUE, map(flatten, predicate.args))
    if isinstance(predicate, Or):
        return _connect(Or, _TRUE, _FALSE, map(flatten, predicate.args))
    return predicate


def merge_ranges(predicate: Predicate) -> Predicate:
    """Combine the conditions on one column under AND or OR; detect those that never or always hold."""
    if isinstance(predicate, And):
        return _combine(And, intersect, _FALSE, tuple(map(merge_ranges, predicate.args)))
    if isinstance(predicate, Or):
        return _combine(Or, unite, _TRUE, tuple(map(merge_ranges, predicate.args)))
    if isinstance(predicate, Truth):
        return predicate
    return _combine(And, intersect, _FALSE, (predicate,))


def absorb(predicate: Predicate) -> Predicate:
    """`a OR (a AND b)` is `a`; `a AND (a OR b)` is `a`."""
    if isinstance(predicate, And | Or):
        args = tuple(map(absorb, predicate.args))
        outer, inner = (And, Or) if isinstance(predicate, And) else (Or, And)
        sets = [frozenset(arg.args) if isinstance(arg, inner) else frozenset((arg,)) for arg in args]
        kept = tuple(args[i] for i in _minimal_sets(sets))
        return kept[0] if len(kept) == 1 else outer(kept)
    return predicate


RULES: tuple[Callable[[Predicate], Predicate], ...] = (
    split_mixed_kinds,
    simplify_like,
    push_not,
    find_elements,
    drop_unknown,
    flatten,
    merge_ranges,
    absorb,
)


def rewrite(predicate: Predicate) -> Predicate:
    """Apply all rules in order until nothing changes."""
    before: Predicate | None = None
    while predicate != before:
        before = predicate
        for rule in RULES:
            predicate = rule(predicate)
    return predicate


def _connect(kind: type[And] | type[Or], strong: Truth, weak: Truth, args: Iterable[Predicate]) -> Predicate:
    """Build one AND (or OR): `strong` decides it, `weak` has no effect."""
    found: dict[Predicate, None] = {}
    for arg in args:
        if arg == strong:
            return strong
        if arg != weak:
            found.update(dict.fromkeys(arg.args if isinstance(arg, kind) else (arg,)))
    parts = tuple(found)
    return weak if not parts else parts[0] if len(parts) == 1 else kind(parts)


def _combine(
    kind: type[And] | type[Or],
    merge: Callable[[Iterable[Literal]], tuple[Literal, ...] | None],
    otherwise: Truth,
    args: tuple[Predicate, ...],
) -> Predicate:
    literals = [arg for arg in args if not isinstance(arg, And | Or | Truth)]
    merged = merge(literals)
    if merged is None:
        return otherwise
    parts = (*merged, *(arg for arg in args if isinstance(arg, And | Or | Truth)))
    return parts[0] if len(parts) == 1 else kind(parts)


def _minimal_sets(sets: list[frozenset[Predicate]]) -> list[int]:
    """The indexes of the sets that contain no other set (of equal sets, the first)."""
    single = {next(iter(one)) for one in sets if len(one) == 1}
    first: dict[frozenset[Predicate], int] = {}
    for i, one in enumerate(sets):
        if len(one) == 1 or one.isdisjoint(single):
            first.setdefault(one, i)
    large = [one for one in first if len(one) > 1]
    return [i for one, i in first.items() if len(one) == 1 or not any(other < one for other in large)]


# -- normal forms ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NormalForm:
    """`dnf`: an OR of groups, each an AND of literals; `cnf`: an AND of groups, each an OR of literals."""

    kind: Word["dnf", "cnf"]
    groups: tuple[tuple[Literal, ...], ...]

    @property
    def never(self) -> bool:
        """No row can match."""
        return self.kind == "dnf" and not self.groups

    @property
    def always(self) -> bool:
        """Every row matches."""
        return self.kind == "dnf" and self.groups == ((),)

    @property
    def predicate(self) -> Predicate:
        """The condition it represents."""
        inner, outer = (And, Or) if self.kind == "dnf" else (Or, And)
        parts = tuple(g[0] if len(g) == 1 else inner(g) for g in self.groups if g)
        if self.never or self.always:
            return Truth(self.always)
        return parts[0] if len(parts) == 1 else outer(parts)

    def __str__(self) -> str:
        return str(self.predicate)


def normalise(predicate: Predicate, cap: int = CAP) -> NormalForm:
    """The normal form of a condition: DNF if it has at most `cap` conjunctions, else CNF, else an error."""
    if any(isinstance(atom, In) and len(atom.values) > _LONG for atom in atoms(predicate)):
        return _normalised(predicate, cap)  # not worth the memory
    return _remembered(predicate, cap)


def compact_form(predicate: Predicate) -> NormalForm:
    """The normal form of a condition that is registered once: CNF where a DNF would be large.

    A rule with long lists of alternatives is one conjunction of clauses, not hundreds of conjunctions.

    >>> from tocsin.language.algebra import Column
    >>> lists = [Or(tuple(Compare(Column(f"{a}{n}"), "=", n) for n in range(10))) for a in "xy"]
    >>> len(normalise(And(tuple(lists))).groups), len(compact_form(And(tuple(lists))).groups)
    (100, 2)
    """
    simple = rewrite(predicate)
    conjunctions, clauses = _count(simple, Or), _count(simple, And)
    if conjunctions <= FEW:
        return _dnf(simple)
    if clauses <= MOST_GROUPS:
        return _cnf(simple)
    return _normalised(simple, MOST_GROUPS)


def _normalised(predicate: Predicate, cap: int) -> NormalForm:
    simple = rewrite(predicate)
    conjunctions, clauses = _count(simple, Or), _count(simple, And)
    if conjunctions <= cap:
        return _dnf(simple)
    if clauses <= cap:
        return _cnf(simple)
    raise NormalFormError(
        f"the condition has {_approximately(conjunctions)} conjunctions and {_approximately(clauses)} "
        f"clauses, and at most {cap} of either are supported",
        None,
        "use IN for alternatives of one column, or split the subscription at an OR",
    )


def _dnf(simple: Predicate) -> NormalForm:
    conjoined = (intersect(group) for group in _multiply(simple, Or, And))
    return NormalForm("dnf", _absorbed(group for group in conjoined if group is not None))


def _cnf(simple: Predicate) -> NormalForm:
    joined = (unite(group) for group in _multiply(simple, And, Or))
    groups = _absorbed(group for group in joined if group is not None)
    return NormalForm("cnf", groups) if groups else NormalForm("dnf", ((),))


_remembered = lru_cache(maxsize=1 << 13)(_normalised)  # shards of a pipeline normalise the same conditions


def alternatives(predicate: Predicate, cap: int) -> list[tuple[Literal, ...]] | None:
    """The conjunctions of a condition that may contain slots (`template.py`); None if over the cap.

    Uses only rules that read no value, so a conjunction may be unsatisfiable.
    """
    simple = flatten(drop_unknown(push_not(predicate)))
    return _multiply(simple, Or, And) if _count(simple, Or) <= cap else None


def _count(predicate: Predicate, added: type[And] | type[Or]) -> int:
    """The number of groups after multiplying out: sums over `added`, products over the other operator."""
    if isinstance(predicate, And | Or):
        counts = [_count(arg, added) for arg in predicate.args]
        return sum(counts) if isinstance(predicate, added) else math.prod(counts)
    return 1


def _multiply(
    predicate: Predicate, outer: type[And] | type[Or], inner: type[And] | type[Or]
) -> list[tuple[Literal, ...]]:
    if isinstance(predicate, Truth):
        return [()] if predicate.value == (outer is Or) else []
    if isinstance(predicate, outer):
        return [group for arg in predicate.args for group in _multiply(arg, outer, inner)]
    if isinstance(predicate, inner):
        parts = [_multiply(arg, outer, inner) for arg in predicate.args]
        return [tuple(literal for group in choice for literal in group) for choice in product(*parts)]
    assert not isinstance(predicate, And | Or)
    return [(predicate,)]


def _absorbed(groups: Iterable[tuple[Literal, ...]]) -> tuple[tuple[Literal, ...], ...]:
    found = list(groups)
    kept = _minimal_sets([frozenset(group) for group in found])
    return tuple(found[i] for i in kept)


def _approximately(count: int) -> str:
    return str(count) if count < 10**6 else f"about 10^{len(str(count)) - 1}"
