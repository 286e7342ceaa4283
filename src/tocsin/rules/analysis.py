r"""Values as an index of Elasticsearch has them: words of texts, whole numbers, moments.

`indexed(path, 'kind')` is an attribute like any other, computed once per event and place:

    standard, whitespace, simple, keyword   the words of all texts there, each between spaces; BETWEEN_VALUES
                                            parts the texts of a list, so that no phrase goes over two
    text, lowercase                         one value as text, as it is or in small letters
    long, double, float, boolean            one value as a number or a boolean, also if it is a text of one
    date, date_second                       one value as milliseconds since 1970 in UTC

>>> from tocsin.model.derived import derived
>>> derived("\x1findexed(title, 'standard')")({"title": ["The 2 QUICK foxes' jump-rope", "v1.5"]})
' the 2 quick foxes jump rope \x1f v1.5 '
>>> derived("\x1findexed(at, 'date')")({"at": "1970-01-01T00:00:01Z"})
1000
"""

from __future__ import annotations

import math
import re
from calendar import timegm
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from tocsin.model.derived import BETWEEN_VALUES, MISSING, Computed, unquoted
from tocsin.model.paths import Path, Step, read_path

__all__ = ["ANALYZERS", "KINDS", "json_text", "moment", "number", "of_indexed", "words_of"]

_HAN = "\u3040-\u309f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # each character of these is a word
_MARKS = "\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u064b-\u065f\u0900-\u0903\u093a-\u094f\u200d\ufe0f"
_LETTER = rf"[^\W\d_{_HAN}]"
_WORD = re.compile(
    rf"[{_HAN}]|(?:[^\W{_HAN}]|[{_MARKS}]|(?<={_LETTER})[:.'\u2019\u00b7\u2027](?={_LETTER})"
    r"|(?<=\d)[,;.'\u2019](?=\d))+"
)
_LONGEST = 255  # a longer word is cut into pieces
_LETTERS = re.compile(r"[^\W\d_]+")


def _standard(text: str) -> list[str]:
    found = []
    for word in _WORD.findall(text):
        if word.strip("_"):
            found += [word[n : n + _LONGEST].lower() for n in range(0, len(word), _LONGEST)]
    return found


ANALYZERS: dict[str, Callable[[str], list[str]]] = {
    "standard": _standard,
    "whitespace": str.split,
    "simple": lambda text: [word.lower() for word in _LETTERS.findall(text)],
    "keyword": lambda text: [text] if text else [],
}


def words_of(text: str, analyzer: str) -> list[str]:
    """The words that an analyzer makes of a text.

    >>> words_of("Jump-rope, 3.5 km: it's _ on_top", "standard")
    ['jump', 'rope', '3.5', 'km', "it's", 'on_top']
    """
    return ANALYZERS[analyzer](text)


def json_text(value: Any) -> str | None:
    """A value as text, as fields of text take it; None for null, objects and lists."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else None


# -- one value --------------------------------------------------------------------------------------------


_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def number(value: Any) -> int | float | None:
    """A number, or a text of one."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if not isinstance(value, str):
        return value if math.isfinite(value) else None
    if _NUMBER.fullmatch(value) is None:
        return None
    found = float(value)
    return int(value) if re.fullmatch(r"[+-]?[0-9]{1,30}", value) else found if math.isfinite(found) else None


def _long(value: Any) -> Any:
    found = number(value)
    return MISSING if found is None or not -(2**63) <= found < 2**63 else int(found)


def _double(value: Any) -> Any:
    found = number(value)
    return MISSING if found is None else float(found)


def _float(value: Any) -> Any:
    found = number(value)
    return MISSING if found is None or abs(found) > 3.4028234e38 else float(np.float32(found))


def _boolean(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    return (
        {"true": True, "false": False, "": False}.get(value, MISSING) if isinstance(value, str) else MISSING
    )


def _text(value: Any) -> Any:
    found = json_text(value)
    return MISSING if found is None else found


def _lowercase(value: Any) -> Any:
    found = json_text(value)
    return MISSING if found is None else found.lower()


_ISO = re.compile(
    r"(\d{4})(?:-(\d\d)(?:-(\d\d)(?:T(?:(\d\d)(?::(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?)?"
    r"(Z|[+-]\d\d(?::?\d\d)?)?)?)?)?)?",
    re.ASCII,
)
_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@lru_cache(maxsize=1 << 14)
def moment(text: str, unit: int = 1, last: bool = False) -> int | None:
    """Milliseconds since 1970 of a text in ISO form, or of a whole number of units of milliseconds.

    What the text leaves out is the first such moment, or the last.

    >>> moment("1970-01-02"), moment("1970-01-01", last=True), moment("1500000000000"), moment("1970-13")
    (86400000, 86399999, 1500000000000, None)
    """
    found = _ISO.fullmatch(text)
    if found is None:
        return int(text) * unit if re.fullmatch(r"-?[0-9]{1,18}", text) else None
    year, month, day, hour, minute, second, part, zone = found.groups()
    leap = int(year) % 4 == 0 and (int(year) % 100 != 0 or int(year) % 400 == 0)
    m = int(month or (12 if last else 1))
    if not 1 <= m <= 12 or int(year) == 0:
        return None
    longest = 29 if m == 2 and leap else _DAYS[m - 1]
    values = [
        int(given) if given is not None else (top if last else low)
        for given, low, top in ((day, 1, longest), (hour, 0, 23), (minute, 0, 59), (second, 0, 59))
    ]
    d, h, mi, s = values
    if not (1 <= d <= longest and h <= 23 and mi <= 59 and s <= 59):
        return None
    millis = int((part or "").ljust(3, "0")[:3]) if part else (999 if last else 0)
    offset = 0
    if zone is not None and zone != "Z":
        digits = zone[1:].replace(":", "").ljust(4, "0")
        offset = (int(digits[:2]) * 60 + int(digits[2:])) * (-1 if zone[0] == "-" else 1)
    return (timegm((int(year), m, d, h, mi, s)) - offset * 60) * 1000 + millis


def _date(value: Any, unit: int = 1) -> Any:
    if isinstance(value, float) and value == int(value):
        value = int(value)
    text = None if isinstance(value, bool) else json_text(value)
    found = None if text is None else moment(text, unit)
    return MISSING if found is None else found


_ONE: dict[str, Callable[[Any], Any]] = {
    "boolean": _boolean,
    "date": _date,
    "date_second": lambda value: _date(value, 1000),
    "double": _double,
    "float": _float,
    "long": _long,
    "lowercase": _lowercase,
    "text": _text,
}
KINDS = (*_ONE, *ANALYZERS)


# -- the attribute ----------------------------------------------------------------------------------------


def of_indexed(arguments: str) -> Computed:
    """`indexed(path, 'kind')`."""
    where, kind = arguments.rsplit(",", 1)
    path, kind = read_path(where.strip()), unquoted(kind)
    if kind in _ONE:
        return _of_one(path, _ONE[kind])
    if kind not in ANALYZERS:
        raise ValueError(f"the kind is one of {', '.join(KINDS)}")
    steps, analyze = path.steps, ANALYZERS[kind]

    def words(event: Mapping[str, Any]) -> Any:
        texts = [text for value in _spread(event, steps) if (text := json_text(value)) is not None]
        found = [f" {' '.join(analyze(text))} " for text in texts]
        return BETWEEN_VALUES.join(found) if found else MISSING

    return words


def _of_one(path: Path, read: Callable[[Any], Any]) -> Computed:
    def compute(event: Mapping[str, Any]) -> Any:
        value = path.value(event)
        return MISSING if value is MISSING or value is None else read(value)

    return compute


def _spread(value: Any, steps: tuple[Step, ...]) -> Iterator[Any]:
    """The values at names inside each other, through lists."""
    if isinstance(value, list | tuple):
        for one in value:
            yield from _spread(one, steps)
    elif not steps:
        yield value
    elif isinstance(value, Mapping) and steps[0] in value:
        yield from _spread(value[steps[0]], steps[1:])
