"""Conditions to flat filters: literal by literal (`Builder`), or by whole columns of tests (`Assembly`).

`flatten` compiles single subscriptions. Columns of predicates (`columnar.py`) and templates
(`templated.py`) fill the same arrays by column, without a Python loop over subscriptions.

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
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tocsin.language.algebra import (
    Between,
    Column,
    Compare,
    Ilike,
    In,
    IsNull,
    IsTrue,
    Like,
    Not,
    Rlike,
    Value,
)
from tocsin.language.rewrite import Literal, NormalForm, normalise
from tocsin.model.buffers import to_arrow, to_numpy
from tocsin.model.columns import Index, Mask, sliced
from tocsin.model.folding import fold
from tocsin.model.schema import Type
from tocsin.predicate.codes import GREATEST, LEAST, fits, interval
from tocsin.predicate.flat import (
    ABSENT,
    NEGATED,
    OR_NEXT,
    SPACES,
    CodeSpace,
    FlatFilters,
    recode_texts,
    sort_texts,
)
from tocsin.predicate.patterns import LikeForm, read_like

__all__ = ["Assembly", "Builder", "TextPool", "flatten", "successor"]

Test = tuple[int, int, int, int]  # dimension, low, high, flags
Clause = list[Test]  # alternatives; an empty clause never holds
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
    """Collects the tests of single conditions; texts are numbered first and ranked at the end."""

    def __init__(self) -> None:
        self._count = 0
        self._owner: list[int] = []
        self._start: list[int] = [0]
        self._tests: list[Test] = []
        self._names: dict[str, int] = {}
        self._dims: dict[tuple[int, CodeSpace, int], int] = {}
        self._texts: dict[bytes, int] = {}
        self._backwards: dict[bytes, int] = {}
        self._patterns: dict[tuple[str, str], int] = {}

    def add(self, form: NormalForm) -> None:
        """Appends a filter."""
        if form.kind == "dnf":
            for group in form.groups:
                self._conjunction([clause for literal in group for clause in self._clauses(literal)])
        else:
            self._conjunction([clause for group in form.groups for clause in self._any(group)])
        self._count += 1

    def add_literal(self, literal: Literal | None) -> None:
        """Appends a filter of one literal, as one conjunction; None never holds."""
        groups = () if literal is None else normalise(literal).groups  # two: NOT BETWEEN 1 AND 'a'
        if groups:
            self._conjunction([clause for choice in product(*groups) for clause in self._any(choice)])
        self._count += 1

    def build(self) -> FlatFilters:
        tests = np.array(self._tests, np.int64).reshape(-1, 4)
        dim, low, high = tests[:, 0].astype(np.int32), tests[:, 1].copy(), tests[:, 2].copy()
        dims = np.array(list(self._dims), np.int64).reshape(-1, 3)
        space = dims[:, 1].astype(np.uint8)
        sorted_texts = []
        for which, known in ((CodeSpace.TEXT, self._texts), (CodeSpace.REVERSED, self._backwards)):
            texts, rank = sort_texts(list(known))
            mine = space[dim] == which
            low[mine], high[mine] = recode_texts(low[mine], rank), recode_texts(high[mine], rank)
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
            return  # an empty clause never holds
        for clause in clauses:
            for dim, low, high, flags in clause[:-1]:
                self._tests.append((dim, low, high, flags | OR_NEXT))
            self._tests.append(clause[-1])
        self._owner.append(self._count)
        self._start.append(len(self._tests))

    def _any(self, literals: Iterable[Literal]) -> list[Clause]:
        """A clause of CNF; a literal of several clauses is distributed over the others."""
        parts = [self._clauses(literal) for literal in literals]
        return [[test for clause in choice for test in clause] for choice in product(*parts)]

    # -- literals --------------------------------------------------------------------------------

    def _clauses(self, literal: Literal) -> list[Clause]:
        """A literal as clauses, all of which must hold."""
        negated = isinstance(literal, Not)
        atom = literal.arg if isinstance(literal, Not) else literal
        if isinstance(atom, IsTrue):
            own = self._clauses(atom.arg)
            return _complement(own) if negated else own
        if isinstance(atom, IsNull):
            space = CodeSpace.ANY if atom.column.type is None else SPACES[atom.column.type]
            return [[(self._dim(atom.column, space), *ALL, 0 if negated else ABSENT)]]
        if isinstance(atom, Like):
            return self._like(atom, negated)
        if isinstance(atom, Ilike):
            return self._matched(atom.column, "ilike", fold(atom.pattern), negated)
        if isinstance(atom, Rlike):
            return self._matched(atom.column, "rlike", atom.pattern, negated)
        if isinstance(atom, Between):
            return self._range(atom.column, atom.low, atom.high, negated)
        if isinstance(atom, In) and not negated and (several := self._one_of(atom)) is not None:
            return [several]
        if isinstance(atom, In):
            parts = [self._compare(Compare(atom.column, "!=" if negated else "=", v)) for v in atom.values]
            if negated:
                return [clause for part in parts for clause in part]
            return [[test for part in parts for clause in part for test in clause]]
        assert isinstance(atom, Compare), atom
        return self._compare(atom)

    def _one_of(self, atom: In) -> Clause | None:
        """The clause of an IN, made at once; None if its values are not all texts or all plain numbers."""
        column, values, types = atom.column, list[Any](atom.values), set(map(type, atom.values))
        own = column.type or (Type.STRING if types == {str} else Type.DOUBLE)
        if own is Type.STRING and types == {str}:
            known = self._texts
            codes = [4 * known.setdefault(text.encode(), len(known)) for text in values]
        elif own is Type.DOUBLE and types <= {int, float} and all(-(2**53) < v < 2**53 for v in values):
            bits = np.array(values, np.float64).view(np.int64)  # as `double_codes`, which may be interpreted
            codes = np.where(bits < 0, -(bits & np.int64(2**63 - 1)), bits).tolist()
        elif own is Type.BIGINT and types == {int} and all(LEAST < v < GREATEST for v in values):
            codes = values
        else:
            return None
        dim = self._dim(column, SPACES[own])
        return [(dim, code, code, 0) for code in codes]

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
            if large:  # maybe no double equals it: then only a BIGINT can
                there = self._dim(column, CodeSpace.BIGINT)
                inside = interval(Type.BIGINT, "=", value)
                clauses.append([(there, *ALL, ABSENT), (there, *inside, NEGATED)])
            return clauses
        clause = [(dim, low, high, 0)] if low <= high else []
        if large:
            low, high = interval(Type.BIGINT, op, value)
            clause += [(self._dim(column, CodeSpace.BIGINT), low, high, 0)] if low <= high else []
        return [clause]

    def _range(self, column: Column, low: Value, high: Value, negated: bool) -> list[Clause]:
        """BETWEEN is both comparisons; NOT BETWEEN two alternatives (by column: one NEGATED test)."""
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
            ordered = isinstance(low, str) or first <= last  # texts have no ranks yet
            return [[(dim, first, last, 0)] if ordered else []]
        return ends

    def _compare_text(self, column: Column, op: str, text: bytes) -> list[Clause]:
        dim = self._dim(column, CodeSpace.TEXT)
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
        form, text = read_like(atom.pattern)
        flags = NEGATED if negated else 0
        if form is LikeForm.EQUAL:
            return self._compare_text(atom.column, "!=" if negated else "=", text.encode())
        if not text:  # matches any text
            return [[]] if negated else [[(self._dim(atom.column, CodeSpace.TEXT), *ALL, 0)]]
        if form in (LikeForm.PREFIX, LikeForm.SUFFIX):
            prefix = form is LikeForm.PREFIX
            space = CodeSpace.TEXT if prefix else CodeSpace.REVERSED
            known = self._texts if prefix else self._backwards
            begin = text.encode() if prefix else text.encode()[::-1]
            low = 4 * known.setdefault(begin, len(known))
            after = successor(begin)
            high = GREATEST if after is None else 4 * known.setdefault(after, len(known)) - 1
            return [[(self._dim(atom.column, space), low, high, flags)]]
        return self._matched(atom.column, "like", atom.pattern, negated)

    def _matched(self, column: Column, kind: str, pattern: str, negated: bool) -> list[Clause]:
        dim = self._pattern(column, kind, pattern)
        if not negated:
            return [[(dim, *ALL, 0)]]
        return [[(self._dim(column, CodeSpace.TEXT), *ALL, 0)], [(dim, *ALL, ABSENT)]]

    def _pattern(self, column: Column, kind: str, pattern: str) -> int:
        number = self._patterns.setdefault((kind, pattern), len(self._patterns))
        return self._dim(column, CodeSpace.PATTERN, number)

    def _dim(self, column: Column, space: CodeSpace, pattern: int = -1) -> int:
        name = self._names.setdefault(column.name, len(self._names))
        return self._dims.setdefault((name, space, pattern), len(self._dims))


def _complement(clauses: list[Clause]) -> list[Clause]:
    """Clauses that hold where these do not hold all.

    >>> _complement([[(0, 5, 5, 0)], [(1, *ALL, ABSENT)]]) == [
    ...     [(0, 5, 5, NEGATED), (0, *ALL, ABSENT), (1, *ALL, 0)]
    ... ]
    True
    """
    unlike = [[_unlike(test) for test in clause] for clause in clauses]
    return [[test for part in choice for test in part] for choice in product(*unlike)]


def _unlike(test: Test) -> list[Test]:
    """A clause that holds where a test does not."""
    dim, low, high, flags = test
    if flags & ABSENT:
        return [(dim, *ALL, 0)]
    outside = [] if (low, high) == ALL else [(dim, low, high, flags ^ NEGATED)]
    return [*outside, (dim, *ALL, ABSENT)]


def _open_type(value: Value) -> Type:
    """The type of an attribute of an open stream that can be compared with the value."""
    if isinstance(value, bool):
        return Type.BOOLEAN
    if isinstance(value, int | float):
        return Type.DOUBLE
    assert isinstance(value, date), value
    return Type.TIMESTAMP


def _is_large(value: Value) -> bool:
    """Whether the number is so large that not every whole number near it is a double."""
    return not isinstance(value, bool) and isinstance(value, int | float) and abs(value) >= 2**53


# -- by column ----------------------------------------------------------------------------------------------


class TextPool:
    """Texts collected from several columns and ranked together at the end.

    >>> pool = TextPool()
    >>> at = pool.add(pa.array(["red", "blue"]))
    >>> texts, rank = pool.ranked()
    >>> texts.to_pylist(), (4 * rank[at]).tolist()
    ([b'blue', b'red'], [4, 0])
    """

    def __init__(self) -> None:
        self._dictionaries: list[Any] = []
        self._count = 0

    def add(self, texts: Any) -> Index:
        """The numbers of the texts (an Arrow array without nulls), valid until they are ranked."""
        coded = texts if pa.types.is_dictionary(texts.type) else texts.dictionary_encode()
        index = to_numpy(coded.indices).astype(np.int64) + self._count
        self._dictionaries.append(coded.dictionary.cast(pa.large_binary()))
        self._count += len(coded.dictionary)
        return index

    def ranked(self) -> tuple[Any, Index]:
        """All texts in order, and the rank of each number."""
        return sort_texts(pa.concat_arrays(self._dictionaries) if self._dictionaries else [])

    def prefixes(self, texts: Any, backwards: bool = False) -> tuple[Index, Index, Mask]:
        """For each prefix: its number, the number of its successor, and whether it has a successor."""
        coded = texts.dictionary_encode()
        begins = [text.encode() for text in coded.dictionary.to_pylist()]
        begins = [text[::-1] for text in begins] if backwards else begins
        ends = [successor(text) for text in begins]
        first = self.add(to_arrow(begins, pa.large_binary()))
        last = self.add(to_arrow([end or b"" for end in ends], pa.large_binary()))
        index = to_numpy(coded.indices)
        bounded = np.array([end is not None for end in ends], np.bool_)
        if not len(index):
            return first, last, bounded
        return first[index], last[index], bounded[index]


_SPACES = 16  # more than there are code spaces


class _Chunk(NamedTuple):
    place: Index
    key: Index  # attribute and code space; pattern dimensions have the keys above these
    low: Index
    high: Index
    flags: NDArray[np.uint8]


class Assembly:
    """Builds flat filters from whole columns of tests over named attributes.

    Tests arrive in chunks, each of one code space: a *place* (ascending by filter, and by order within
    it), an attribute, an interval. In the end texts are ranked, chunks are sorted by place, and
    conjunctions with an empty interval are dropped.

    >>> from tocsin.predicate.codes import comparisons, locate_numbers
    >>> made = Assembly(["price", "size"])
    >>> ends = comparisons(np.array([3, 3]), locate_numbers(Type.BIGINT, np.array([5, 7])))
    >>> made.tests(CodeSpace.BIGINT, np.array([0, 1]), np.array([0, 1]), *ends)
    >>> flat = made.filters(np.array([0, 1]), 2)
    >>> flat.owner.tolist(), flat.high.tolist()
    ([0, 1], [5, 7])
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._chunks: list[_Chunk] = []
        self._ranked: list[tuple[int, TextPool]] = []  # chunks whose codes are numbers in a pool
        self._mixed: list[tuple[int, TextPool, NDArray[np.bool_]]] = []  # the same for some tests of a chunk
        self._never: list[Index] = []
        self._missing: list[Index] = []  # places that can never hold
        self._dims: dict[tuple[int, int], int] = {}  # (attribute, pattern)
        self._patterns: dict[tuple[str, str], int] = {}
        self.texts, self.backwards = TextPool(), TextPool()

    def tests(
        self,
        space: CodeSpace,
        place: Index,
        attribute: Index,
        low: Index,
        high: Index,
        flags: NDArray[np.uint8],
    ) -> None:
        """Adds tests of one code space. Texts have codes by their numbers in the pool: 4 x number, +1, -1."""
        if space in (CodeSpace.TEXT, CodeSpace.REVERSED):
            self._ranked.append(
                (len(self._chunks), self.texts if space is CodeSpace.TEXT else self.backwards)
            )
        key = attribute.astype(np.int64) * _SPACES + int(space)
        self._chunks.append(_Chunk(place, key, low, high, flags))

    def presence(self, space: CodeSpace, place: Index, attribute: Index, absent: NDArray[np.bool_]) -> None:
        """Adds tests for IS NULL (absent) and IS NOT NULL."""
        low, high = np.full(len(place), LEAST), np.full(len(place), GREATEST)
        flags = np.where(absent, ABSENT, 0).astype(np.uint8)
        key = attribute.astype(np.int64) * _SPACES + int(space)
        self._chunks.append(_Chunk(place, key, low, high, flags))

    def prefixes(self, place: Index, attribute: Index, texts: Any, backwards: bool = False) -> None:
        """Adds tests for texts that begin, or end, with one of these (an Arrow array without empty texts)."""
        pool = self.backwards if backwards else self.texts
        first, after, bounded = pool.prefixes(texts, backwards)
        high = np.where(bounded, 4 * after - 1, GREATEST)
        space = CodeSpace.REVERSED if backwards else CodeSpace.TEXT
        self.tests(space, place, attribute, 4 * first, high, np.zeros(len(place), np.uint8))

    def patterns(self, kind: str, place: Index, attribute: Index, patterns: Any) -> None:
        """Adds tests for texts that match a pattern (an Arrow array of patterns)."""
        coded = patterns.dictionary_encode()
        own = np.array(
            [self._patterns.setdefault((kind, p), len(self._patterns)) for p in coded.dictionary.to_pylist()],
            np.int64,
        )
        number = own[to_numpy(coded.indices)]
        pairs, which = np.unique(number * len(self._names) + attribute, return_inverse=True)
        dims = [
            self._dims.setdefault((p % len(self._names), p // len(self._names)), len(self._dims))
            for p in pairs.tolist()
        ]
        key = np.array(dims, np.int64)[which] + len(self._names) * _SPACES
        low, high = np.full(len(place), LEAST), np.full(len(place), GREATEST)
        self._chunks.append(_Chunk(place, key, low, high, np.zeros(len(place), np.uint8)))

    def adopt(self, flat: FlatFilters, which: Index, place: Index) -> None:
        """Adds the tests of filter which[i] at place[i]; each filter has at most one conjunction."""
        conjunction = np.full(flat.count + 1, -1, np.int64)
        conjunction[flat.owner] = np.arange(len(flat.owner))
        own = conjunction[which]
        there = own >= 0
        self._missing.append(place[~there])
        own, place = own[there], place[there]
        sizes = flat.sizes[own]
        _, test = sliced(flat.start[:-1][own], sizes)
        place, dim = np.repeat(place, sizes), flat.dim[test]
        names = {name: i for i, name in enumerate(self._names)}
        attribute = np.array([names[name] for name in flat.names], np.int64)[flat.attribute]
        key = attribute * _SPACES + flat.space
        for d in np.flatnonzero(flat.pattern >= 0).tolist():
            pattern = flat.patterns[flat.pattern[d]]
            number = self._patterns.setdefault(pattern, len(self._patterns))
            own_dim = self._dims.setdefault((int(attribute[d]), number), len(self._dims))
            key[d] = len(self._names) * _SPACES + own_dim
        low, high, space = flat.low[test], flat.high[test], flat.space[dim]
        # All tests of a place stay in one chunk, so that sorting keeps alternatives together.
        chunk = _Chunk(place, key[dim], low, high, flat.flags[test])
        for which_space, pool, texts in (
            (CodeSpace.TEXT, self.texts, flat.texts),
            (CodeSpace.REVERSED, self.backwards, flat.backwards),
        ):
            if len(texts):
                mine = space == which_space
                number_of = pool.add(texts)
                low[mine], high[mine] = (
                    recode_texts(low[mine], number_of),
                    recode_texts(high[mine], number_of),
                )
                self._mixed.append((len(self._chunks), pool, mine))
        self._chunks.append(chunk)

    def never(self, filters: Index) -> None:
        """Marks filters (or conjunctions, if places belong to these) that cannot hold."""
        self._never.append(filters)

    def filters(self, filter_of: Index, count: int, conjunction_of: Index | None = None) -> FlatFilters:
        """The flat filters.

        `filter_of` maps places to filters, each of one conjunction. If `conjunction_of` is given, it maps
        places to conjunctions (ascending), and `filter_of` maps conjunctions to filters.
        """
        texts, backwards = self._rank()
        place, key, low, high, flags = self._concatenated()
        owner = np.arange(count) if conjunction_of is None else filter_of
        conjunction = (filter_of if conjunction_of is None else conjunction_of)[place]
        alone = (flags & (NEGATED | ABSENT | OR_NEXT)) == 0
        alone[1:] &= (flags[:-1] & OR_NEXT) == 0
        kept = np.ones(len(owner), np.bool_)
        kept[conjunction[alone & (low > high)]] = False
        of_place = filter_of if conjunction_of is None else conjunction_of
        for dropped in (*self._never, *(of_place[places] for places in self._missing)):
            kept[dropped] = False
        if not kept.all():
            stay = kept[conjunction]
            conjunction, key, low, high = (a[stay] for a in (conjunction, key, low, high))
            flags = flags[stay]
        sizes = np.bincount(conjunction, minlength=len(owner))[kept]
        start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        used = np.zeros(len(self._names) * _SPACES + len(self._dims), np.bool_)
        used[key] = True
        number = (np.cumsum(used) - 1).astype(np.int32)
        keys = np.flatnonzero(used)
        plain = keys < len(self._names) * _SPACES
        dims = np.array(list(self._dims), np.int64).reshape(-1, 2)[keys[~plain] - len(self._names) * _SPACES]
        return FlatFilters(
            count,
            owner[kept].astype(np.int32),
            start,
            number[key],
            low,
            high,
            flags,
            np.concatenate([keys[plain] // _SPACES, dims[:, 0]]).astype(np.int32),
            np.concatenate([keys[plain] % _SPACES, np.full(len(dims), CodeSpace.PATTERN)]).astype(np.uint8),
            np.concatenate([np.full(plain.sum(), -1), dims[:, 1]]).astype(np.int32),
            self._names,
            texts,
            backwards,
            tuple(self._patterns),
        )

    def _rank(self) -> tuple[Any, Any]:
        """Replaces numbers of texts by ranks in all chunks; the sorted texts, forwards and backwards."""
        ordered: dict[int, tuple[Any, Index]] = {}
        whole: Any = slice(None)
        for number, pool, mine in (*((n, p, whole) for n, p in self._ranked), *self._mixed):
            if id(pool) not in ordered:
                ordered[id(pool)] = pool.ranked()
            rank = ordered[id(pool)][1]
            chunk = self._chunks[number]
            low, high = chunk.low.copy(), chunk.high.copy()
            low[mine], high[mine] = recode_texts(low[mine], rank), recode_texts(high[mine], rank)
            self._chunks[number] = chunk._replace(low=low, high=high)
        nothing = to_arrow([], pa.large_binary())
        texts, backwards = (ordered.get(id(p), (nothing,))[0] for p in (self.texts, self.backwards))
        return texts, backwards

    def _concatenated(self) -> _Chunk:
        """All chunks sorted by place, stable within a place."""
        chunks = self._chunks
        if not chunks:
            empty = np.empty(0, np.int64)
            return _Chunk(empty, empty, empty, empty, np.empty(0, np.uint8))
        if len(chunks) == 1:
            whole = chunks[0]
        else:
            whole = _Chunk(*(np.concatenate([chunk[i] for chunk in chunks]) for i in range(5)))
        if np.all(whole.place[1:] >= whole.place[:-1]):
            return whole
        order = np.argsort(whole.place, kind="stable")
        return _Chunk(*(column[order] for column in whole))  # type: ignore[arg-type]
