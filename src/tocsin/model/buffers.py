"""NumPy and Arrow arrays from each other's buffers, and texts as Arrow arrays or concatenated bytes.

`pa.array` and `Array.to_numpy` import pandas if it is installed, only to learn that nothing here is a pandas
object: that was a sixth of the time of importing the engine. These functions share buffers instead; what they
cannot share goes the usual way.

>>> to_arrow(np.array([1, 2])).to_pylist(), to_arrow(["a", "é"], pa.large_string()).to_pylist()
([1, 2], ['a', 'é'])
>>> to_numpy(to_arrow(np.array([True, False, True]))[1:]).tolist()
[False, True]
>>> texts = Texts(pa.array(["price", "color"]))
>>> texts[1], len(texts), texts[:1]
('color', 2, ('price',))
>>> [array.tolist() for array in laid_out(["a", "é"])]
[[0, 1, 3], [97, 195, 169]]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["Texts", "laid_out", "numbers_to_arrow", "texts_to_arrow", "to_arrow", "to_numpy", "unwritable"]

_TEXTS: dict[Any, type[np.signedinteger[Any]]] = {
    pa.string(): np.int32,
    pa.binary(): np.int32,
    pa.large_string(): np.int64,
    pa.large_binary(): np.int64,
}
"""Arrow's types of texts and bytes, and the types of their offsets."""

_FEW = 1000
"""Above so many texts Arrow converts them, which was faster for 100,000; the bound itself is a guess."""


def to_arrow(
    values: NDArray[Any] | Sequence[Any], type: Any = None, valid: NDArray[np.bool_] | None = None
) -> Any:
    """An Arrow array of the values, NULL where not valid; of a NumPy array of numbers without a copy."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "iufb" and values.ndim == 1:
        array = numbers_to_arrow(values, valid)
        return array if type is None or array.type == type else array.cast(type)
    if type in _TEXTS:
        return texts_to_arrow(values, type, valid)
    return pa.array(values, type) if valid is None else pa.array(values, type, mask=~valid)


def numbers_to_arrow(values: NDArray[Any], valid: NDArray[np.bool_] | None = None) -> Any:
    """The same for numbers or booleans, in the Arrow type of their NumPy type."""
    if values.dtype.kind == "b":
        data, kind = np.packbits(values, bitorder="little"), pa.bool_()
    else:
        data, kind = np.ascontiguousarray(values), pa.from_numpy_dtype(values.dtype)
    nulls = None if valid is None or valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [nulls, pa.py_buffer(data)])


def texts_to_arrow(
    values: NDArray[Any] | Sequence[Any], type: Any, valid: NDArray[np.bool_] | None = None
) -> Any:
    """The same for texts or byte strings: of few, one buffer and offsets into it."""
    if len(values) <= _FEW:
        nulls = None if valid is None or valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
        texts = values.tolist() if isinstance(values, np.ndarray) else values
        try:
            if pa.types.is_string(type) or pa.types.is_large_string(type):
                whole = "".join(texts)
                data = whole.encode()
                if not whole.isascii():
                    texts = [text.encode() for text in texts]
            else:
                data = b"".join(texts)
            start = np.zeros(len(texts) + 1, np.int64)
            np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)), out=start[1:])
            if start[-1] <= np.iinfo(_TEXTS[type]).max:
                offsets = pa.py_buffer(start.astype(_TEXTS[type], copy=False))
                return pa.Array.from_buffers(type, len(texts), [nulls, offsets, pa.py_buffer(data)])
        except (TypeError, UnicodeEncodeError):
            pass  # something else is among them: Arrow's conversion takes or rejects it
    return pa.array(values, type) if valid is None else pa.array(values, type, mask=~valid)


def to_numpy(array: Any) -> NDArray[Any]:
    """The values of an Arrow array; those of numbers without nulls are shared, and cannot be written to."""
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
    kind = array.type
    if array.null_count or not isinstance(array, pa.Array):
        return array.to_numpy(zero_copy_only=False)
    if pa.types.is_boolean(kind):
        return _bits(array)
    if kind in _TEXTS and len(array) <= _FEW:
        texts = np.empty(len(array), object)
        texts[:] = array.to_pylist()
        return texts
    if not (pa.types.is_integer(kind) or pa.types.is_float64(kind) or pa.types.is_float32(kind)):
        return array.to_numpy(zero_copy_only=False)
    dtype = np.dtype(kind.to_pandas_dtype())
    if not len(array):
        return np.empty(0, dtype)
    return np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * dtype.itemsize)


def _bits(array: Any) -> NDArray[np.bool_]:
    if not len(array):
        return np.empty(0, np.bool_)
    data = np.frombuffer(array.buffers()[1], np.uint8)
    ends = array.offset + len(array)
    bits = np.unpackbits(data[array.offset // 8 : (ends + 7) // 8], bitorder="little")
    first = array.offset % 8
    return bits[first : first + len(array)].view(np.bool_)


def unwritable(array: NDArray[Any]) -> NDArray[Any]:
    """The same array, not writable: kernels are compiled once for input that may or may not be writable."""
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


class Texts(Sequence[str]):
    """A sequence of texts over an Arrow array without nulls; Python strings are made at first use."""

    def __init__(self, array: Any, *, are_distinct: bool = False) -> None:
        self.array = array
        self.are_distinct = are_distinct  # if it is known

    @cached_property
    def _list(self) -> tuple[str, ...]:
        return tuple(self.array.to_pylist())

    def __len__(self) -> int:
        return len(self.array)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[str, ...]: ...
    def __getitem__(self, at: int | slice) -> str | tuple[str, ...]:
        return self._list[at]

    def __iter__(self) -> Iterator[str]:
        return iter(self._list)


def laid_out(texts: Sequence[str] | NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Where each text begins, and all bytes concatenated."""
    array: Any = texts.array if isinstance(texts, Texts) else texts_to_arrow(texts, pa.large_string())
    array = array.cast(pa.large_string())
    _, offsets, data = array.buffers()
    if offsets is None or not len(array):
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    start = np.frombuffer(offsets, np.int64, len(array) + 1, 8 * array.offset)
    return start, np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
