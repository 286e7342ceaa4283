"""Arrays from shared buffers equal those that Arrow converts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.model.buffers import to_arrow, to_numpy

NUMBERS = [np.int8, np.int32, np.int64, np.uint8, np.uint64, np.float32, np.float64, np.bool_]
TEXTS = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]


@given(st.sampled_from(NUMBERS), st.lists(st.integers(0, 99), max_size=30), st.integers(0, 9), st.data())
def test_numbers_there_and_back(dtype: Any, numbers: list[int], skip: int, data: st.DataObject) -> None:
    values = np.array(numbers).astype(dtype)
    array = to_arrow(values)
    assert array.equals(pa.array(values))
    array.validate(full=True)
    part = array[skip:]
    assert to_numpy(part).tolist() == values[skip:].tolist() and to_numpy(part).dtype == values.dtype
    valid = np.array(data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values))), np.bool_)
    assert to_arrow(values, None, valid).equals(pa.array(values, mask=~valid))


@given(st.sampled_from(TEXTS), st.lists(st.text(max_size=5), max_size=30), st.integers(0, 9), st.data())
def test_texts_there_and_back(kind: Any, texts: list[str], skip: int, data: st.DataObject) -> None:
    given: list[Any] = [text.encode() for text in texts] if "binary" in str(kind) else texts
    array = to_arrow(given, kind)
    assert array.equals(pa.array(given, kind))
    array.validate(full=True)
    assert to_numpy(array[skip:]).tolist() == given[skip:]
    valid = np.array(data.draw(st.lists(st.booleans(), min_size=len(texts), max_size=len(texts))), np.bool_)
    values = np.empty(len(given), object)
    values[:] = given
    assert to_arrow(values, kind, valid).equals(pa.array(values, kind, mask=~valid))


def test_what_cannot_be_shared_is_converted() -> None:
    assert to_arrow(["a", None], pa.string()).to_pylist() == ["a", None]
    assert to_arrow([1, None]).to_pylist() == [1, None]
    assert to_arrow(np.arange(6)[::2], pa.int32()).equals(pa.array([0, 2, 4], pa.int32()))
    assert to_numpy(pa.array([1, None])).tolist()[0] == 1.0
    assert to_numpy(pa.chunked_array([[1], [2, 3]])).tolist() == [1, 2, 3]
    assert to_numpy(pa.chunked_array([], pa.int64())).tolist() == []
    many = [f"text {i}" for i in range(5000)]
    assert to_numpy(to_arrow(many, pa.string())).tolist() == many
    with pytest.raises(UnicodeEncodeError):
        to_arrow(["\ud800"], pa.string())
