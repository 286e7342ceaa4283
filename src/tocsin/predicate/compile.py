"""From conditions in normal form to flat arrays, literal by literal.

This is the way of single subscriptions; columns of predicates and templates fill the same arrays by
column (`columnar.py`).

>>> from tocsin.language.algebra import Column, Compare
>>> from tocsin.language.rewrite import normalise
>>> flat = flatten([normalise(Compare(Column("price", Type.BIGINT), "<", 5))])
>>> flat.names, flat.high.tolist()
(('price',), [4])
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date
from itertools import product

import numpy as np

from tocsin.language.algebra import Between, Column, Compare, In, IsNull, Like, Not, Rlike, Value
from tocsin.language.rewrite import Literal, NormalForm, normalise
from tocsin.model.schema import Type
from tocsin.predicate.codes import GREATEST, LEAST, fits, interval
from tocsin.predicate.flat import ABSENT, NEGATED, OR_NEXT, SPACES, FlatFilters, Space, as_texts, ranks
from tocsin.predicate.like import read_like

__all__ = ["Builder", "flatten", "successor"]

Test = tuple[int, int, int, int]  # dimension, low, high, flags
Clause = list[Test]  # alternatives; none: never
ALL = (LEAST, GREATEST)


def flatten(forms: Iterable[NormalForm]) -> FlatFilters:
    """The filters as flat arrays."""
    builder = Builder()
    for form in forms:
        builder.add(form)
    return builder.build()


def successor(text: bytes) -> bytes | None:
    """The least byte string above all that begin with this one; None if there is none.

    >>> successor(b"ab"), successor(b"\\xff")
    (b'ac', None)
    """
    cut = text.rstrip(b"\xff")
    return cut[:-1] + bytes([cut[-1] + 1]) if cut else None


class Builder:
    """Collects tests; texts are numbered as they come and ranked at the end."""

    def __init__(self) -> None:
        self._count = 0
        self._owner: list[int] = []
        self._start: list[int] = [0]
        self._tests: list[Test] = []
        self._names: dict[str, int] = {}
        self._dims: dict[tuple[int, Space, int], int] = {}
        self._texts: dict[bytes, int] = {}
        self._backwards: dict[bytes, int] = {}
        self._patterns: dict[tuple[str, str], int] = {}

    def add(self, form: NormalForm) -> None:
        """One more filter."""
        if form.kind == "dnf":
            for group in form.groups:
                self._conjunction([clause for literal in group for clause in self._clauses(literal)])
        else:
            self._conjunction([clause for group in form.groups for clause in self._any(group)])
        self._count += 1

    def add_literal(self, literal: Literal | None) -> None:
        """One more filter, of one literal in one conjunction; None never holds."""
        groups = () if literal is None else normalise(literal).groups  # NOT BETWEEN has two, say
        if groups:
            self._conjunction([clause for choice in product(*groups) for clause in self._any(choice)])
        self._count += 1

    def build(self) -> FlatFilters:
        tests = np.array(self._tests, np.int64).reshape(-1, 4)
        dim, low, high = tests[:, 0].astype(np.int32), tests[:, 1].copy(), tests[:, 2].copy()
        dims = np.array(list(self._dims), np.int64).reshape(-1, 3)
        space = dims[:, 1].astype(np.uint8)
        sorted_texts = []
        for which, known in ((Space.TEXT, self._texts), (Space.REVERSED, self._backwards)):
            texts, rank = as_texts(list(known))
            mine = space[dim] == which
            low[mine], high[mine] = ranks(low[mine], rank), ranks(high[mine], rank)
            sorted_texts.append(texts)
        return FlatFilters(
            self._count,
            np.array(self._owner, np.int32),
            np.array(self._start, np.int64),
            dim,
            low,
            high,
            tests[:, 3].astype(np.uint8),
            dims[:, 0].astype(np.int32),
            space,
            dims[:, 2].astype(np.int32),
            tuple(self._names),
            sorted_texts[0],
            sorted_texts[1],
            tuple(self._patterns),
        )

    def _conjunction(self, clauses: Sequence[Clause]) -> None:
        if not all(clauses):
            return  # a clause without alternatives: it never holds
        for clause in clauses:
            for dim, low, high, flags in clause[:-1]:
                self._tests.append((dim, low, high, flags | OR_NEXT))
            self._tests.append(clause[-1])
        self._owner.append(self._count)
        self._start.append(len(self._tests))

    def _any(self, literals: Iterable[Literal]) -> list[Clause]:
        """A clause of CNF; a literal that is several clauses is distributed over the others."""
        parts = [self._clauses(literal) for literal in literals]
        return [[test for clause in choice for test in clause] for choice in product(*parts)]

    # -- literals --------------------------------------------------------------------------------

    def _clauses(self, literal: Literal) -> list[Clause]:
        """A literal as clauses that must all hold."""
        negated = isinstance(literal, Not)
        atom = literal.arg if isinstance(literal, Not) else literal
        if isinstance(atom, IsNull):
            space = Space.ANY if atom.column.type is None else SPACES[atom.column.type]
            return [[(self._dim(atom.column, space), *ALL, 0 if negated else ABSENT)]]
        if isinstance(atom, Like):
            return self._like(atom, negated)
        if isinstance(atom, Rlike):
            return self._matched(atom.column, "rlike", atom.pattern, negated)
        if isinstance(atom, Between):
            return self._range(atom.column, atom.low, atom.high, negated)
        if isinstance(atom, In):
            parts = [self._compare(Compare(atom.column, "!=" if negated else "=", v)) for v in atom.values]
            if negated:
                return [clause for part in parts for clause in part]
            return [[test for part in parts for clause in part for test in clause]]
        assert isinstance(atom, Compare), atom
        return self._compare(atom)

    def _compare(self, atom: Compare) -> list[Clause]:
        column, value = atom.column, atom.value
        if value is None or (column.type is not None and not fits(column.type, value)):
            return [[]]
        if isinstance(value, str):
            return self._compare_text(column, atom.op, value.encode())
        own = column.type or _open_type(value)
        dim = self._dim(column, SPACES[own])
        op = "=" if atom.op == "!=" else atom.op
        low, high = interval(own, op, value)
        large = column.type is None and _is_large(value)
        if atom.op == "!=":
            clauses = [[(dim, low, high, NEGATED)]]
            if large:  # it may be no double: only a BIGINT that is none either can be equal
                there = self._dim(column, Space.BIGINT)
                inside = interval(Type.BIGINT, "=", value)
                clauses.append([(there, *ALL, ABSENT), (there, *inside, NEGATED)])
            return clauses
        clause = [(dim, low, high, 0)] if low <= high else []
        if large:
            low, high = interval(Type.BIGINT, op, value)
            clause += [(self._dim(column, Space.BIGINT), low, high, 0)] if low <= high else []
        return [clause]

    def _range(self, column: Column, low: Value, high: Value, negated: bool) -> list[Clause]:
        """BETWEEN: both ends; or NOT BETWEEN: outside of either."""
        if negated:
            below, above = (
                self._compare(Compare(column, "<", low)),
                self._compare(Compare(column, ">", high)),
            )
            return [[*below[0], *above[0]]]
        ends = [*self._compare(Compare(column, ">=", low)), *self._compare(Compare(column, "<=", high))]
        if [len(end) for end in ends] == [1, 1] and ends[0][0][0] == ends[1][0][0]:
            (dim, a, b, _), (_, c, d, _) = ends[0][0], ends[1][0]
            first, last = max(a, c), min(b, d)
            ordered = isinstance(low, str) or first <= last  # texts are not ranked yet
            return [[(dim, first, last, 0)] if ordered else []]
        return ends

    def _compare_text(self, column: Column, op: str, text: bytes) -> list[Clause]:
        dim = self._dim(column, Space.TEXT)
        code = 4 * self._texts.setdefault(text, len(self._texts))
        low, high = {
            "=": (code, code),
            "!=": (code, code),
            "<": (LEAST, code - 1),
            "<=": (LEAST, code),
            ">": (code + 1, GREATEST),
            ">=": (code, GREATEST),
        }[op]
        return [[(dim, low, high, NEGATED if op == "!=" else 0)]]

    def _like(self, atom: Like, negated: bool) -> list[Clause]:
        way, text = read_like(atom.pattern)
        flags = NEGATED if negated else 0
        if way == "equal":
            return self._compare_text(atom.column, "!=" if negated else "=", text.encode())
        if not text:  # any text at all
            return [[]] if negated else [[(self._dim(atom.column, Space.TEXT), *ALL, 0)]]
        if way in ("prefix", "suffix"):
            space = Space.TEXT if way == "prefix" else Space.REVERSED
            known = self._texts if way == "prefix" else self._backwards
            begin = text.encode() if way == "prefix" else text.encode()[::-1]
            low = 4 * known.setdefault(begin, len(known))
            after = successor(begin)
            high = GREATEST if after is None else 4 * known.setdefault(after, len(known)) - 1
            return [[(self._dim(atom.column, space), low, high, flags)]]
        return self._matched(atom.column, "like", atom.pattern, negated)

    def _matched(self, column: Column, kind: str, pattern: str, negated: bool) -> list[Clause]:
        dim = self._pattern(column, kind, pattern)
        if not negated:
            return [[(dim, *ALL, 0)]]
        return [[(self._dim(column, Space.TEXT), *ALL, 0)], [(dim, *ALL, ABSENT)]]

    def _pattern(self, column: Column, kind: str, pattern: str) -> int:
        number = self._patterns.setdefault((kind, pattern), len(self._patterns))
        return self._dim(column, Space.PATTERN, number)

    def _dim(self, column: Column, space: Space, pattern: int = -1) -> int:
        name = self._names.setdefault(column.name, len(self._names))
        return self._dims.setdefault((name, space, pattern), len(self._dims))


def _open_type(value: Value) -> Type:
    """The type of an attribute of an open stream that can be compared with the value."""
    if isinstance(value, bool):
        return Type.BOOLEAN
    if isinstance(value, int | float):
        return Type.DOUBLE
    assert isinstance(value, date), value
    return Type.TIMESTAMP


def _is_large(value: Value) -> bool:
    """A number so large that a whole number beside it may be no double."""
    return not isinstance(value, bool) and isinstance(value, int | float) and abs(value) >= 2**53
