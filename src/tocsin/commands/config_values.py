"""Checked values of a TOML config: an error names the key, its section and the nearest known key.

>>> text({"path": 5}, "path", "sink")
Traceback (most recent call last):
...
tocsin.commands.config_values.ConfigError: path in [sink] must be a string, not 5
hint: write path = "..."
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from tocsin.errors import UsageError

__all__ = [
    "ConfigError",
    "check_keys",
    "decimal",
    "number",
    "read_format",
    "section",
    "sections",
    "text",
    "texts",
]

_MISSING = object()
_LARGEST = 2**31 - 1  # of Spark's options


class ConfigError(UsageError):
    """A config has a wrong key or value, or lacks one."""


def section(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A section that occurs once."""
    found = values.get(name)
    if isinstance(found, list):
        raise ConfigError(f"there are several sections [{name}]", hint=f"write one, as [{name}]")
    if not isinstance(found, dict):
        raise ConfigError(f"there is no section [{name}]", hint="see: tocsin run --example")
    return found


def sections(values: Mapping[str, Any], name: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Sections that may be repeated, as [[sink]], each with its name for error messages."""
    found = values.get(name)
    if not isinstance(found, list):
        return [(name, section(values, name))]
    if not found or not all(isinstance(each, dict) for each in found):
        raise ConfigError(f"there is no section [{name}]", hint=f"write [{name}], or several [[{name}]]")
    return [(f"{name} {place}", each) for place, each in enumerate(found, start=1)]


def read_format(values: Mapping[str, Any], where: str, formats: Mapping[str, tuple[str, ...]]) -> str:
    """The format of a section; the other keys must be keys of that format."""
    all_keys = {"format", *(key for keys in formats.values() for key in keys)}
    check_keys(values, all_keys, where)
    form = text(values, "format", where)
    if form not in formats:
        raise ConfigError(f"there is no format {form!r} for [{where}]", hint=_nearest(form, formats))
    for key in values:
        if key != "format" and key not in formats[form]:
            keys = ", ".join(formats[form]) or "no other keys"
            raise ConfigError(f"format {form!r} in [{where}] has no key {key!r}", hint=f"it has {keys}")
    return form


def check_keys(values: Mapping[str, Any], keys: Iterable[str], where: str) -> None:
    """Raise for a key that is not one of these."""
    for key in values:
        if key not in keys:
            place = f" in [{where}]" if where else ""
            raise ConfigError(f"unknown key {key!r}{place}", hint=_nearest(key, keys))


def _nearest(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(known), 1)
    return f"did you mean {near[0]!r}?" if near else f"one of {', '.join(sorted(known))}"


def text(values: Mapping[str, Any], key: str, where: str, default: Any = _MISSING) -> str:
    value = _value(values, key, where, default)
    if not isinstance(value, str):
        raise ConfigError(f"{key}{_in(where)} must be a string, not {value!r}", hint=f'write {key} = "..."')
    return value


def number(values: Mapping[str, Any], key: str, where: str, default: Any = _MISSING) -> Any:
    value = _value(values, key, where, default)
    if value is default:
        return value
    if isinstance(value, bool) or not isinstance(value, int) or (value < 1 and key != "id"):
        above = "" if key == "id" else " above 0"
        raise ConfigError(f"{key}{_in(where)} must be a whole number{above}, not {value!r}")
    if key != "id" and value > _LARGEST:
        raise ConfigError(f"{key}{_in(where)} is {value}", hint=f"at most {_LARGEST}")
    return value


def decimal(values: Mapping[str, Any], key: str, where: str) -> float:
    value = _value(values, key, where, _MISSING)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise ConfigError(f"{key}{_in(where)} must be a number from 0, not {value!r}")
    return float(value)


def texts(values: Mapping[str, Any], key: str, where: str = "") -> dict[str, str]:
    """A table of strings, for options or headers; numbers and booleans become strings."""
    found = values.get(key, {})
    if not isinstance(found, dict):
        raise ConfigError(f"{key}{_in(where)} must be a table", hint=f'write {key} = {{ "name" = "value" }}')
    out = {}
    for name, value in found.items():
        if not isinstance(value, str | int | float):
            raise ConfigError(
                f"{name} of {key}{_in(where)} must be a string, not {value!r}", hint="put it in quotes"
            )
        out[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return out


def _value(values: Mapping[str, Any], key: str, where: str, default: Any) -> Any:
    if key not in values and default is _MISSING:
        raise ConfigError(f"{key}{_in(where)} is missing", hint="see: tocsin run --example")
    return values.get(key, default)


def _in(where: str) -> str:
    return f" in [{where}]" if where else ""
