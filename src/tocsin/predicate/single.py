"""One event as entries, straight from its dict: no columns, no Arrow.

The counterpart of `events.py` for a single event. Only the attributes that an index uses become
entries; all others are checked and skipped:

    {"price": 3, "color": "red", "note": "x"}      entries               numbers    texts
                                                   price  DOUBLE  0      3
                                                   color  TEXT    0                 red

What can be done for all values of an event at once is done so: each step of a loop in Python costs as much
as matching an entry.

An event that is anything but plain (a value that is not exactly an int, float, str or bool; a number that is
NaN or no double; a name in another case) is not coded: `code` returns False, and the caller takes the way of
batches, which accepts or rejects it. So one place decides what is a good event.

>>> from tocsin.predicate.conjunctions import Names
>>> buffer = EventBuffer()
>>> coder = SingleCoder(Names(["price", "color"]), None, buffer)
>>> coder.code({"price": 3, "color": "red", "note": "x"}), buffer.count, buffer.text_entries(), buffer.texts
(True, 2, [(1, 0)], ['red'])
>>> coder.code({"price": [3]})
False
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from math import hypot
from struct import Struct
from typing import Any

import numpy as np

from tocsin.model.schema import Type, read_time
from tocsin.model.times import time_code
from tocsin.predicate.conjunctions import Names
from tocsin.predicate.flat import SPACES, CodeSpace

__all__ = ["DOUBLES", "INTEGERS", "EventBuffer", "SingleCoder"]

_VARIOUS = -1  # the entries of an event are of several spaces

_MOST_EAGER = 1 << 18  # attributes that are all numbered in advance
_MOST_NAMES = 1 << 16  # names of attributes, and times, that are remembered
_EXACT = 2**53  # whole numbers below are doubles
_SIZE = 2**63 - 1
_ROUNDED = -1  # the space of a DECIMAL: a batch rounds its values, none is plain
_MIXED = 16  # events after a mixed one that are likely mixed too
_LIKE_A_TIME = re.compile(r"\d{4}-\d")  # other texts hold no time
_NUMERIC, _TEXTUAL = frozenset({int, float}), frozenset({str})
_TEXT, _NUMBER, _TRUTH, _WHOLE = (
    int(space) for space in (CodeSpace.TEXT, CodeSpace.DOUBLE, CodeSpace.BOOLEAN, CodeSpace.BIGINT)
)
_TEXT_TIME = int(CodeSpace.TEXT_TIME)

Columns = tuple[Sequence[int], Sequence[int], Sequence[int]]  # attributes, spaces, codes
_NO_TEXTS: Columns = (), (), ()


class _Structs(dict[int, Struct]):
    """By count: how to write so many values of one kind into memory."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def __missing__(self, count: int) -> Struct:
        made = self[count] = Struct(f"<{count}{self._kind}")
        return made


INTEGERS, DOUBLES = _Structs("q"), _Structs("d")


class EventBuffer:
    """One coded event, in memory that kernels read.

    Rows of `entries`: attributes (-1: the index does not use it), spaces and codes of entries; the bits
    of the event's numbers. The code of a number or text is its place among the event's numbers or texts.
    """

    def __init__(self, capacity: int = 64) -> None:
        self.count = 0  # of entries
        self.texts: Collection[str] = ()
        self._columns = _NO_TEXTS
        self._space = _VARIOUS  # of all entries of the last event
        self._enlarge(capacity)

    def text_entries(self) -> list[tuple[int, int]]:
        """Attribute and place of each text that the index uses."""
        attributes, spaces, codes = self._columns
        if self._space == _TEXT:
            return [*zip(attributes, range(len(attributes)), strict=True)]
        return [(attributes[n], codes[n]) for n, space in enumerate(spaces) if space == _TEXT]

    def put(self, space: int, attributes: Sequence[int], values: Collection[Any]) -> None:
        """Write an event whose values are all numbers, or all texts."""
        count = self.count = len(values)
        if count > self.capacity:
            self._enlarge(count)
        if self._space != space:  # otherwise the rows of spaces and codes are right already
            self._space, self.entries[1], self.entries[2] = space, space, np.arange(self.capacity)
        INTEGERS[count].pack_into(self._memory, 0, *attributes)
        if space == _NUMBER:
            self.texts, self._columns = (), _NO_TEXTS
            DOUBLES[count].pack_into(self._memory, 24 * self.capacity, *values)
        else:
            self.texts, self._columns = values, (attributes, (), ())

    def put_various(self, columns: Columns, numbers: list[float], texts: list[str]) -> None:
        """Write an event of any values: attributes, spaces and codes."""
        count = self.count = len(columns[0])
        self.texts, self._columns = texts, columns
        if count > self.capacity:
            self._enlarge(count)
        memory, row, write = self._memory, 8 * self.capacity, INTEGERS[count].pack_into
        self._space = _VARIOUS
        write(memory, 0, *columns[0])
        write(memory, row, *columns[1])
        write(memory, 2 * row, *columns[2])
        if numbers:
            DOUBLES[len(numbers)].pack_into(memory, 3 * row, *numbers)

    def _enlarge(self, capacity: int) -> None:
        self.entries, self.capacity = np.zeros((4, capacity), np.int64), capacity
        self._memory = self.entries.data.cast("B")
        self._space = _VARIOUS


class SingleCoder:
    """Codes events for one index; `types` has those of declared columns, None is an open stream."""

    def __init__(self, names: Names, types: Mapping[str, Type] | None, buffer: EventBuffer) -> None:
        self._names, self._buffer = names, buffer
        self.types = types
        self._known = 0  # attributes of the index when `_numbers` was filled
        self._numbers = _AttributeNumbers(self._number)
        self._others = 0  # names that were looked up
        self._spaces = {
            name: _ROUNDED if type.is_decimal else int(SPACES[type]) for name, type in (types or {}).items()
        }
        self._times: dict[str, int] = {}  # codes of texts that hold a time
        self._mixed = 0  # events before it is tried again whether all values are numbers, or texts

    def code(self, event: dict[str, Any]) -> bool:
        """Write the event's entries into the buffer; False if it is not plain."""
        if self._known != len(self._names.attributes):
            self._learn_names()
        try:
            return self._code_open(event) if self.types is None else self._code_declared(event)
        except _NoNameError:
            return False

    def _code_open(self, event: dict[str, Any]) -> bool:
        """An event of numbers alone, or texts alone, without a loop in Python."""
        if self._mixed:
            self._mixed -= 1
            return self._code_each(event)
        values = event.values()
        kinds = {*map(type, values)}
        if kinds <= _NUMERIC and _are_small(values):
            self._buffer.put(_NUMBER, [*map(self._numbers.__getitem__, event)], values)
            return True
        if kinds == _TEXTUAL and not self._names.timed and "".join(values).isascii():
            attributes = [*map(self._numbers.__getitem__, event)]
            if min(attributes) >= 0:  # texts that nobody uses need no code
                self._buffer.put(_TEXT, attributes, values)
                return True
        self._mixed = _MIXED
        return self._code_each(event)

    def _code_each(self, event: dict[str, Any]) -> bool:
        attributes: list[int] = []
        spaces: list[int] = []
        codes: list[int] = []
        numbers: list[float] = []
        texts: list[str] = []
        timed, least, most = self._names.timed, -_EXACT, _EXACT
        for value, attribute in zip(event.values(), map(self._numbers.__getitem__, event), strict=True):
            kind = type(value)
            if kind is str:
                if not value.isascii() and not _is_text(value):
                    return False
                if attribute >= 0:
                    attributes.append(attribute)
                    spaces.append(_TEXT)
                    codes.append(len(texts))
                    texts.append(value)
                    if attribute in timed and (code := self._time_code(value)) is not None:
                        attributes.append(attribute)
                        spaces.append(_TEXT_TIME)
                        codes.append(code)
            elif kind is int or kind is float:
                if not least < value < most and (kind is int or value != value):
                    return False
                if attribute >= 0:
                    attributes.append(attribute)
                    spaces.append(_NUMBER)
                    codes.append(len(numbers))
                    numbers.append(value)
            elif kind is bool:
                if attribute >= 0:
                    attributes.append(attribute)
                    spaces.append(_TRUTH)
                    codes.append(value)
            elif value is not None:
                return False
        self._buffer.put_various((attributes, spaces, codes), numbers, texts)
        return True

    def _code_declared(self, event: dict[str, Any]) -> bool:
        attributes: list[int] = []
        spaces: list[int] = []
        codes: list[int] = []
        numbers: list[float] = []
        texts: list[str] = []
        own, known = self._spaces, self._numbers
        for name, value in event.items():
            space = own.get(name)
            if space is None:
                return False
            if value is None:
                continue
            if not _fits(space, value):
                return False
            attribute = known[name]
            if attribute >= 0:
                attributes.append(attribute)
                spaces.append(space)
                if space == _TEXT:
                    codes.append(len(texts))
                    texts.append(value)
                elif space == _NUMBER:
                    codes.append(len(numbers))
                    numbers.append(value)
                else:
                    codes.append(value)
        self._buffer.put_various((attributes, spaces, codes), numbers, texts)
        return True

    def _learn_names(self) -> None:
        """Number the attributes that filters have named since; of very many, those that events have."""
        attributes, first = self._names.attributes, self._known
        self._known = len(attributes)
        if self._known <= _MOST_EAGER:
            self._numbers.update(zip(attributes.since(first), range(first, self._known), strict=True))
        else:
            self._numbers.clear()

    def _number(self, name: Any) -> int:
        """The index's number of an attribute, or -1."""
        if type(name) is not str or not _is_text(name):
            raise _NoNameError
        self._others += 1
        if self._others >= _MOST_NAMES:
            self._others, self._known = 0, 0
            self._numbers.clear()
            self._learn_names()
        number = self._numbers[name] = int(self._names.attributes.find([name])[0])
        return number

    def _time_code(self, text: str) -> int | None:
        """The code of the time that a text holds; None if it holds none."""
        if not _LIKE_A_TIME.search(text):
            return None
        code = self._times.get(text)
        if code is None:
            try:
                code = time_code(Type.TIMESTAMP, read_time(Type.TIMESTAMP, text))
            except ValueError:
                return None
            if len(self._times) >= _MOST_NAMES:
                self._times.clear()
            self._times[text] = code
        return code


def _fits(space: int, value: Any) -> bool:
    """Whether a value is plain, and of the kind of a column's space."""
    kind = type(value)
    if space == _TEXT:
        return kind is str and (value.isascii() or _is_text(value))
    if space == _WHOLE:
        return kind is int and -_SIZE <= value <= _SIZE
    if space == _NUMBER:
        return -_EXACT < value < _EXACT if kind is int else kind is float and value == value
    return space == _TRUTH and kind is bool


class _NoNameError(Exception):
    """A name of an attribute is no text."""


class _AttributeNumbers(dict[str, int]):
    """The index's numbers of attributes, found when they are first used; -1 if it has none."""

    def __init__(self, find: Callable[[str], int]) -> None:
        self._find = find

    def __missing__(self, name: str) -> int:
        return self._find(name)


def _are_small(numbers: Collection[float]) -> bool:
    """Whether all are so small that ints are doubles; NaN is not. Some that are small may be missed."""
    try:
        return hypot(*numbers) < _EXACT // 2
    except OverflowError:
        return False


def _is_text(value: str) -> bool:
    """Half of a surrogate pair is no text."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
