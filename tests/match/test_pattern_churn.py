"""Patterns that come and go: their numbers are used again, and nothing of them stays."""

from __future__ import annotations

import random
import re

import numpy as np

from tocsin.language.algebra import Column, Rlike
from tocsin.language.rewrite import normalise
from tocsin.match.base import unpack
from tocsin.match.index import Auto
from tocsin.model.columns import Rows, Vector
from tocsin.model.schema import Type
from tocsin.predicate.compile import flatten
from tocsin.predicate.conjunctions import MOST_UNUSED, Names, dimension_key


def test_numbers_of_dropped_patterns_are_used_again() -> None:
    names = Names()
    numbers = [names.number(("rlike", f"p{n}")) for n in range(MOST_UNUSED + 1)]
    used = [dimension_key(np.zeros(3, np.int64), 9, np.array([2, 5, 60]))]
    names.drop_unused(used)
    assert [names.number(("rlike", f"p{n}")) for n in (2, 5, 60)] == [2, 5, 60], "what is used stays"
    fresh = [names.number(("like", f"q{n}")) for n in range(MOST_UNUSED - 2)]
    assert sorted([*fresh, 2, 5, 60]) == numbers, "all numbers are used again before there are more"
    again = Names(patterns=names.patterns)
    assert [again.number(p) for p in names.patterns] == numbers


def test_an_index_forgets_patterns_that_are_gone() -> None:
    index, r = Auto(), random.Random(1)
    live: dict[int, str] = {}
    most = 0
    for turn in range(40):
        slots = np.array([slot for slot in range(40) if slot not in live][:10], np.int64)
        for slot in slots.tolist():
            live[slot] = f"^a{turn}-{r.randrange(3)}.*z{slot % 4}$"
        forms = [normalise(Rlike(Column("t", Type.STRING), live[slot])) for slot in slots.tolist()]
        index.add(slots, flatten(forms))
        texts = [f"a{turn - r.randrange(3)}-{r.randrange(3)}xz{r.randrange(4)}" for _ in range(9)]
        slot, row = unpack(index.match(Rows.of(t=Vector.of(Type.STRING, texts))))
        expected = {(s, i) for s, p in live.items() for i, t in enumerate(texts) if re.search(p, t)}
        assert set(zip(slot.tolist(), row.tolist(), strict=True)) == expected
        gone = r.sample(sorted(live), 10)
        index.remove(np.array(gone, np.int64))
        for s in gone:
            del live[s]
        most = max(most, len(index._segments.names.patterns))
    assert most <= 2 * MOST_UNUSED + 40, "of 400 patterns, few are kept"
    index._check()
