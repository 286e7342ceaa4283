"""Values of a config, read and checked: a wrong one is refused with its place and the nearest right one.

>>> text({"path": 5}, "path", "sink")
Traceback (most recent call last):
...
tocsin.commands.config_values.ConfigError: path in [sink] is a text, not 5
hint: write path = "..."
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from tocsin.errors import UsageError

__all__ = ["ConfigError", "decimal", "format_of", "known", "number", "section", "sections", "text", "texts"]

_MISSING = object()
_LARGEST = 2**31 - 1  # what Spark's options take


class ConfigError(UsageError):
    """A config that says something wrong, or not enough."""


def section(said: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A part of the config that is there once."""
    found = said.get(name)
    if isinstance(found, list):
        raise ConfigError(f"there are several sections [{name}]", hint=f"write one, as [{name}]")
    if not isinstance(found, dict):
        raise ConfigError(f"there is no section [{name}]", hint="see: tocsin run --example")
    return found


def sections(said: Mapping[str, Any], name: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Parts that may be there several times, as [[sink]], each with the name to complain by."""
    found = said.get(name)
    if not isinstance(found, list):
        return [(name, section(said, name))]
    if not found or not all(isinstance(each, dict) for each in found):
        raise ConfigError(f"there is no section [{name}]", hint=f"write [{name}], or several [[{name}]]")
    return [(f"{name} {place}", each) for place, each in enumerate(found, start=1)]


def format_of(said: Mapping[str, Any], where: str, formats: Mapping[str, tuple[str, ...]]) -> str:
    """The format of a section; its other keys must be the format's."""
    everything = {"format", *(key for keys in formats.values() for key in keys)}
    known(said, everything, where)
    form = text(said, "format", where)
    if form not in formats:
        raise ConfigError(f"there is no format {form!r} for [{where}]", hint=_nearest(form, formats))
    for key in said:
        if key != "format" and key not in formats[form]:
            allowed = ", ".join(formats[form]) or "nothing else"
            raise ConfigError(f"format {form!r} in [{where}] takes no {key!r}", hint=f"it takes {allowed}")
    return form


def known(said: Mapping[str, Any], keys: Iterable[str], where: str) -> None:
    """Refuse a key that is not one of these."""
    for key in said:
        if key not in keys:
            place = f" in [{where}]" if where else ""
            raise ConfigError(f"unknown key {key!r}{place}", hint=_nearest(key, keys))


def _nearest(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(known), 1)
    return f"did you mean {near[0]!r}?" if near else f"one of {', '.join(sorted(known))}"


def text(said: Mapping[str, Any], key: str, where: str, default: Any = _MISSING) -> str:
    value = _value(said, key, where, default)
    if not isinstance(value, str):
        raise ConfigError(f"{key}{_in(where)} is a text, not {value!r}", hint=f'write {key} = "..."')
    return value


def number(said: Mapping[str, Any], key: str, where: str, default: Any = _MISSING) -> Any:
    value = _value(said, key, where, default)
    if value is default:
        return value
    if isinstance(value, bool) or not isinstance(value, int) or (value < 1 and key != "id"):
        above = "" if key == "id" else " above 0"
        raise ConfigError(f"{key}{_in(where)} is a whole number{above}, not {value!r}")
    if key != "id" and value > _LARGEST:
        raise ConfigError(f"{key}{_in(where)} is {value}", hint=f"at most {_LARGEST}")
    return value


def decimal(said: Mapping[str, Any], key: str, where: str) -> float:
    value = _value(said, key, where, _MISSING)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise ConfigError(f"{key}{_in(where)} is a number from 0, not {value!r}")
    return float(value)


def texts(said: Mapping[str, Any], key: str, where: str = "") -> dict[str, str]:
    """A table of texts, as options or headers; numbers and yes or no are taken as their texts."""
    found = said.get(key, {})
    if not isinstance(found, dict):
        raise ConfigError(f"{key}{_in(where)} is no table", hint=f'write {key} = {{ "name" = "value" }}')
    out = {}
    for name, value in found.items():
        if not isinstance(value, str | int | float):
            raise ConfigError(
                f"{name} of {key}{_in(where)} is a text, not {value!r}", hint="put it in quotes"
            )
        out[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return out


def _value(said: Mapping[str, Any], key: str, where: str, default: Any) -> Any:
    if key not in said and default is _MISSING:
        raise ConfigError(f"{key}{_in(where)} is missing", hint="see: tocsin run --example")
    return said.get(key, default)


def _in(where: str) -> str:
    return f" in [{where}]" if where else ""
