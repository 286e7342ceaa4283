"""Whole columns of comparisons become intervals of codes."""

from __future__ import annotations

import operator

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tocsin.predicate.codes import COMPARISONS, GREATEST, LEAST, CodePositions, comparisons
from tocsin.predicate.flat import NEGATED

OPERATORS = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
CODES = st.one_of(st.sampled_from([LEAST, LEAST + 1, GREATEST - 1, GREATEST]), st.integers(-4, 4))
CASES = st.tuples(st.integers(0, len(COMPARISONS) - 1), CODES, st.booleans())


@given(st.lists(CASES), CODES)
def test_a_code_is_in_the_interval_if_the_comparison_holds(
    cases: list[tuple[int, int, bool]], code: int
) -> None:
    op, below, exact = (np.array([case[n] for case in cases], kind) for n, kind in enumerate("qq?"))
    ends = comparisons(op, CodePositions(below, exact, np.ones(len(cases), np.bool_)))
    assert [own.dtype for own in ends] == [np.int64, np.int64, np.uint8]
    for (number, place, is_exact), low, high, flags in zip(
        cases, *(own.tolist() for own in ends), strict=True
    ):
        operand = 2 * place + (not is_exact)  # between two codes, if no code is its own
        inside = low <= code <= high
        assert (inside != bool(flags & NEGATED)) == OPERATORS[COMPARISONS[number]](2 * code, operand)
