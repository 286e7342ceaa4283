"""One event as entries, straight from its dict: no columns, no Arrow.

The counterpart of `events.py` for a single event. Only the attributes that an index asks about become
entries; all others are checked and skipped:

    {"price": 3, "color": "red", "note": "x"}      entries                           texts
                                                   price  DOUBLE  code of 3.0
                                                   color  TEXT    0                  red

An event that is anything but plain (a value that is not exactly an int, float, str or bool; a number that is
NaN or no double; a name in another case) is not coded: `code` returns None, and
the caller takes the way of batches, which accepts or rejects it. So one place decides what is a good event.

>>> from tocsin.predicate.conjunctions import Names
>>> coder = SingleCoder(Names(["price", "color"]), None)
>>> coded = coder.code({"price": 3, "color": "red", "note": "x"})
>>> coded.entries[0], coded.entries[3:], coded.texts
(0, [1, 5, 0], ['red'])
>>> coder.code({"price": [3]}) is None
True
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from struct import Struct
from typing import Any, NamedTuple

from tocsin.model.schema import Type, read_time
from tocsin.model.times import time_code
from tocsin.predicate.conjunctions import Names
from tocsin.predicate.flat import SPACES, CodeSpace

__all__ = ["CodedEvent", "SingleCoder", "double_code"]

_MOST_EAGER = 1 << 18  # attributes that are all numbered in advance
_MOST_NAMES = 1 << 16  # names of attributes, and codes of numbers, that are remembered
_EXACT = 2**53  # whole numbers below are doubles
_SIZE = 2**63 - 1
_LIKE_A_TIME = re.compile(r"\d{4}-\d")  # other texts hold no time
_DOUBLE, _BITS = Struct("<d"), Struct("<q")
_TEXT, _NUMBER, _TRUTH, _WHOLE = (
    int(space) for space in (CodeSpace.TEXT, CodeSpace.DOUBLE, CodeSpace.BOOLEAN, CodeSpace.BIGINT)
)
_TEXT_TIME = int(CodeSpace.TEXT_TIME)


class CodedEvent(NamedTuple):
    """The entries of an event, flat (attribute, space, code, attribute, ...), and its texts."""

    entries: list[int]
    texts: list[str]


def double_code(value: float) -> int:
    """The code of a double that is not NaN, as `columns.double_codes` has it.

    >>> double_code(-1.5) < double_code(-0.0) == double_code(0.0) < double_code(2.0)
    True
    """
    (bits,) = _BITS.unpack(_DOUBLE.pack(value))
    return bits if bits >= 0 else -(bits & _SIZE)


class SingleCoder:
    """Codes events for one index; `types` has those of declared columns, None is an open stream."""

    def __init__(self, names: Names, types: Mapping[str, Type] | None) -> None:
        self._names = names
        self.types = types
        self._known = 0  # attributes of the index when `_numbers` was filled
        self._numbers: dict[str, int] = {}  # of attributes; -1: the index does not ask about it
        self._others = 0  # names that were looked up
        self._spaces = {name: int(SPACES[type]) for name, type in (types or {}).items()}
        self._codes: dict[float, int] = {}  # of numbers
        self._times: dict[str, int] = {}  # codes of texts that hold a time

    def code(self, event: dict[str, Any]) -> CodedEvent | None:
        """The event's entries; None if it is not plain."""
        if self._known != len(self._names.attributes):
            self._learn_names()
        return self._code_open(event) if self.types is None else self._code_declared(event)

    def _code_open(self, event: dict[str, Any]) -> CodedEvent | None:
        entries: list[int] = []
        texts: list[str] = []
        numbers, codes, timed = self._numbers, self._codes, self._names.timed
        for name, value in event.items():
            number = numbers.get(name)
            if number is None:
                number = self._number(name)
                if number is None:
                    return None
            kind = type(value)
            if kind is str:
                if not value.isascii() and not _is_text(value):
                    return None
                if number >= 0:
                    entries += (number, _TEXT, len(texts))
                    texts.append(value)
                    if number in timed and (code := self._time_code(value)) is not None:
                        entries += (number, _TEXT_TIME, code)
            elif kind is int or kind is float:
                code = codes.get(value)
                if code is None:
                    code = self._number_code(value)
                    if code is None:
                        return None
                if number >= 0:
                    entries += (number, _NUMBER, code)
            elif kind is bool:
                if number >= 0:
                    entries += (number, _TRUTH, int(value))
            elif value is not None:
                return None
        return CodedEvent(entries, texts)

    def _code_declared(self, event: dict[str, Any]) -> CodedEvent | None:
        entries: list[int] = []
        texts: list[str] = []
        spaces, numbers = self._spaces, self._numbers
        for name, value in event.items():
            space = spaces.get(name)
            if space is None:
                return None
            if value is None:
                continue
            kind = type(value)
            code: int | None
            if space == _TEXT:
                if kind is not str or not (value.isascii() or _is_text(value)):
                    return None
                code = len(texts)
            elif space == _NUMBER:
                if kind is not float and kind is not int:
                    return None
                code = self._codes.get(value)
                if code is None:
                    code = self._number_code(value)
            elif space == _WHOLE:
                code = value if kind is int and -_SIZE <= value <= _SIZE else None
            else:
                code = int(value) if space == _TRUTH and kind is bool else None
            if code is None:
                return None
            number = numbers.get(name)
            if number is None:
                number = self._number(name)
                assert number is not None
            if number >= 0:
                entries += (number, space, code)
                if space == _TEXT:
                    texts.append(value)
        return CodedEvent(entries, texts)

    def _learn_names(self) -> None:
        """Number the attributes that filters have named since; of very many, those that events have."""
        attributes, first = self._names.attributes, self._known
        self._known = len(attributes)
        if self._known <= _MOST_EAGER:
            self._numbers.update(zip(attributes.since(first), range(first, self._known), strict=True))
        else:
            self._numbers.clear()

    def _number(self, name: Any) -> int | None:
        """The index's number of an attribute, or -1; None if it is no name."""
        if type(name) is not str or not _is_text(name):
            return None
        self._others += 1
        if self._others >= _MOST_NAMES:
            self._others, self._known = 0, 0
            self._numbers.clear()
            self._learn_names()
        number = self._numbers[name] = int(self._names.attributes.find([name])[0])
        return number

    def _number_code(self, value: int | float) -> int | None:
        """The code of a number; None if it is NaN, or may be no double."""
        if value != value or (type(value) is int and not -_EXACT < value < _EXACT):
            return None
        if len(self._codes) >= _MOST_NAMES:
            self._codes.clear()
        code = self._codes[value] = double_code(value)
        return code

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


def _is_text(value: str) -> bool:
    """Half of a surrogate pair is no text."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
