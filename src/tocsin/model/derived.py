"""Attributes that are computed from an event of an open stream by a named function.

    ip_key(source)                a text for the address there; addresses of a network are in a range of them
    event_text()                  all its values as one text, which patterns search for words anywhere in it
    alike(user, owner, 'equal')   whether two texts (or numbers) are equal, or the first begins, ends with or
                                  contains the second, without regard to case
    geo_km(place, 52.5, 13.4)     the distance in kilometres from a point
    indexed(title, 'standard')    the words of a text, or another form of a value (`rules/analysis.py`)
    held('a = 1 AND b = 2')       TRUE where a condition holds (`rules/shared.py`)
    cesql('INT(hop) + 1')         the value of an expression of CloudEvents (`rules/cesql_values.py`)

Such an attribute is called by MARK and the text of the call (`model/paths.py`) and is an attribute like any
other: computed once per event, however many conditions use it, and indexed by its value.

>>> ip_key("10.1.2.3"), ip_key("::1"), ip_key("10.1.2")
('v4.0a010203', 'v6.00000000000000000000000000000001', None)
>>> derived("\\x1fip_key(source.ip)")({"source": {"ip": "10.1.2.3"}})
'v4.0a010203'
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from importlib import import_module
from ipaddress import IPv6Address, ip_address
from typing import Any

import numpy as np

from tocsin.model.folding import fold

__all__ = [
    "BETWEEN_VALUES",
    "FUNCTIONS",
    "PATHS",
    "Computed",
    "derived",
    "ip_key",
    "is_derived",
    "kilometres",
    "kilometres_of",
    "unquoted",
]

MISSING: Any = object()
Computed = Callable[[Mapping[str, Any]], Any]  # from an event; MISSING where there is nothing

# By name of the function: what makes it, from the text of its arguments. By module, so that a worker that was
# sent an attribute can make it.
FUNCTIONS: dict[str, str] = {
    "alike": "tocsin.model.derived:of_two",
    "cesql": "tocsin.rules.cesql_values:of_expression",
    "event_text": "tocsin.model.derived:of_event",
    "geo_km": "tocsin.model.derived:of_place",
    "held": "tocsin.rules.shared:of_condition",
    "indexed": "tocsin.rules.analysis:of_indexed",
    "ip_key": "tocsin.model.derived:of_address",
}
PATHS = {
    "alike": 2,
    "geo_km": 1,
    "indexed": 1,
    "ip_key": 1,
}  # how many of the arguments, at the front, are paths; else none
_ARGUMENT = re.compile(r"(?:`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|[^,`'])+", re.DOTALL)
_CALL = re.compile(rf"\x1f({'|'.join(FUNCTIONS)})\((.*)\)", re.DOTALL)


def is_derived(name: str) -> bool:
    """Whether an attribute is computed by a function."""
    return name.startswith("\x1f") and _CALL.fullmatch(name) is not None


@lru_cache(maxsize=1 << 16)
def derived(name: str) -> Computed:
    """What computes an attribute."""
    found = _CALL.fullmatch(name)
    assert found is not None, name
    module, maker = FUNCTIONS[found[1]].split(":")
    made: Computed = getattr(import_module(module), maker)(found[2])
    return made


def unquoted(literal: str) -> str:
    """The text that a literal in quotes stands for.

    >>> unquoted(r"'it\\'s'")
    "it's"
    """
    return re.sub(r"\\(.)", r"\1", literal.strip()[1:-1], flags=re.DOTALL)


# -- addresses ----------------------------------------------------------------------------------------


@lru_cache(maxsize=1 << 12)
def ip_key(text: str) -> str | None:
    """The text that stands for an address; None if it is none."""
    try:
        found = ip_address(text)
    except ValueError:
        return None
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return f"v{found.version}.{int(found):0{found.max_prefixlen // 4}x}"


def of_address(path: str) -> Computed:
    """`ip_key(path)`."""
    value_at = _reader(path)

    def compute(event: Mapping[str, Any]) -> Any:
        value = value_at(event)
        key = ip_key(value) if isinstance(value, str) else None
        return MISSING if key is None else key

    return compute


# -- all values ---------------------------------------------------------------------------------------


BETWEEN_VALUES = "\x1f"


def of_event(arguments: str) -> Computed:
    """`event_text()`: texts as they are, other values as JSON writes them, separated by BETWEEN_VALUES.

    >>> derived("\x1fevent_text()")({"a": ["x", 5, None], "b": {"c": True}}).split(BETWEEN_VALUES)
    ['x', '5', 'null', 'true']
    """
    if arguments:
        raise ValueError("event_text takes no arguments")
    return _event_text


def _event_text(event: Mapping[str, Any]) -> str:
    texts: list[str] = []
    _add_texts(event.values(), texts)
    return BETWEEN_VALUES.join(texts)


def _add_texts(values: Iterable[Any], texts: list[str]) -> None:
    for value in values:
        if isinstance(value, str):
            texts.append(value.replace(BETWEEN_VALUES, " ") if BETWEEN_VALUES in value else value)
        elif isinstance(value, Mapping):
            _add_texts(value.values(), texts)
        elif isinstance(value, list | tuple):
            _add_texts(value, texts)
        elif value is None or isinstance(value, bool):
            texts.append({None: "null", True: "true", False: "false"}[value])
        else:
            texts.append(str(value))


# -- two values -----------------------------------------------------------------------------------------


_ALIKE: dict[str, Callable[[str, str], bool]] = {
    "equal": str.__eq__,
    "prefix": str.startswith,
    "suffix": str.endswith,
    "contains": str.__contains__,
}


def of_two(arguments: str) -> Computed:
    """`alike(path, other, form)`.

    >>> derived("\x1falike(a, b, 'suffix')")({"a": "x/Cmd.exe", "b": "CMD.EXE"})
    True
    """
    path, other, form = (one.strip() for one in _ARGUMENT.findall(arguments))
    one_at, other_at, holds = _reader(path), _reader(other), _ALIKE.get(form.strip("'"))
    if holds is None:
        raise ValueError(f"the form is one of {', '.join(_ALIKE)}")

    def compute(event: Mapping[str, Any]) -> Any:
        one, two = one_at(event), other_at(event)
        if isinstance(one, str) and isinstance(two, str):
            return holds(fold(one), fold(two))
        kinds = {type(one), type(two)}
        return one == two if form == "'equal'" and kinds <= {int, float} else MISSING

    return compute


# -- places -------------------------------------------------------------------------------------------


_EARTH = 6371.0087714  # kilometres: the mean radius


def kilometres(lat: float, lon: float, other_lat: float, other_lon: float) -> float:
    """The distance of two points on the mean sphere of the earth.

    >>> round(kilometres(52.52, 13.405, 48.8566, 2.3522))
    877
    """
    a, b = math.radians(lat), math.radians(other_lat)
    turn = math.radians(other_lon - lon)
    part = math.sin((b - a) / 2) ** 2 + math.cos(a) * math.cos(b) * math.sin(turn / 2) ** 2
    return 2 * _EARTH * math.asin(min(1.0, math.sqrt(part)))


def kilometres_of(lat: Any, lon: Any, other_lat: Any, other_lon: Any) -> Any:
    """`kilometres` of arrays, to a micrometre."""
    a, b = np.radians(lat), np.radians(other_lat)
    turn = np.radians(np.subtract(other_lon, lon))
    part = np.sin((b - a) / 2) ** 2 + np.cos(a) * np.cos(b) * np.sin(turn / 2) ** 2
    return np.round(2 * _EARTH * np.arcsin(np.minimum(1.0, np.sqrt(part))), 9)


def of_place(arguments: str) -> Computed:
    """`geo_km(path, lat, lon)`; for a list of points the least distance."""
    path, lat, lon = arguments.rsplit(",", 2)
    value_at, here = _reader(path.strip()), (float(lat), float(lon))

    def compute(event: Mapping[str, Any]) -> Any:
        distances = [kilometres(*here, *point) for point in _points(value_at(event))]
        return min(distances) if distances else MISSING

    return compute


def _points(value: Any) -> list[tuple[float, float]]:
    """The points of a value: {"lat": .., "lon": ..}, "lat,lon", [lon, lat], GeoJSON, or a list of these."""
    if isinstance(value, Mapping):
        if value.get("type") in ("Point", "point"):
            return _points(value.get("coordinates"))
        return _point(value.get("lat"), value.get("lon"))
    if isinstance(value, str):
        parts = value.split(",")
        return _point(*parts) if len(parts) == 2 else []
    if isinstance(value, list | tuple):
        numbers = [one for one in value if isinstance(one, int | float) and not isinstance(one, bool)]
        if len(numbers) == len(value):
            return _point(value[1], value[0]) if len(value) in (2, 3) else []
        return [point for one in value for point in _points(one)]
    return []


def _point(lat: Any, lon: Any) -> list[tuple[float, float]]:
    try:
        found = float(lat), float(lon)
    except (TypeError, ValueError):
        return []
    return [found] if all(map(math.isfinite, found)) and abs(found[0]) <= 90 else []


def _reader(path: str) -> Callable[[Mapping[str, Any]], Any]:
    from tocsin.model.paths import read_path  # which imports this module

    return read_path(path).value
