"""Labels keep the order of keys, whichever keys are added."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tocsin.language.algebra import Column, OrderKey
from tocsin.model.columns import Rows, Vector
from tocsin.model.schema import Type
from tocsin.rank.labels import Labels, RowKeys

batches = st.lists(
    st.lists(st.tuples(st.integers(-3, 3), st.integers(-2, 2)), min_size=1, max_size=6), max_size=6
)


@given(batches)
def test_labels_are_in_the_order_of_keys_and_stay(drawn: list[list[tuple[int, int]]]) -> None:
    labels, known = Labels(2), {}
    for batch in drawn:
        found = labels.find(np.array(batch, np.int64))
        assert found is not None
        for key, label in zip(batch, found.tolist(), strict=True):
            assert known.setdefault(key, label) == label
        labels._check()
    assert sorted(known) == sorted(known, key=lambda key: known[key])


def test_an_exhausted_gap_is_reported() -> None:
    labels = Labels(1)
    labels.load(np.array([[0], [2**60]]))
    high = 2**60
    for _ in range(100):  # always just above the lowest
        high //= 2
        if labels.find(np.array([[high]])) is None:
            break
    else:
        raise AssertionError("there was always a gap")
    labels._check()
    labels.load(np.array([[0], [high], [2**60]]))
    assert labels.find(np.array([[high]])) is not None


def test_rows_are_labelled_by_order_then_key() -> None:
    order = (OrderKey(Column("per", Type.DOUBLE), descending=True, nulls_first=False),)
    rows = Rows.of(
        name=Vector.of(Type.STRING, ["b", "a", "c", "d"]), per=Vector.of(Type.DOUBLE, [1.0, 1.0, None, 5.0])
    )
    keys = RowKeys(order, ("name",))
    keys.load(rows)
    found = keys.find(rows)
    assert found is not None
    assert np.argsort(found).tolist() == [3, 1, 0, 2]
    later = keys.find(Rows.of(name=Vector.of(Type.STRING, ["aa"]), per=Vector.of(Type.DOUBLE, [1.0])))
    assert later is not None and found[1] < later[0] < found[0]
    keys._check()


def test_very_many_new_keys_are_in_order_too() -> None:
    labels = Labels(1)
    for begin in (0, 5_000_000):
        keys = np.arange(begin, begin + 3_000_000)[:, None]
        found = labels.find(keys)
        if found is None:
            labels.load(np.concatenate([labels._keys, keys]))
            found = labels.find(keys)
        assert found is not None and np.all(np.diff(found) > 0)
