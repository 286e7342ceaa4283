"""Windows events in JSON as rules name their fields: one attribute per value."""

from __future__ import annotations

from typing import Any

__all__ = ["FIELDS", "flat_event"]

FIELDS = {name: [name.replace(" ", ""), name] for name in ("Source Name", "Threat Name", "Process Name")}
FIELDS = {names[0]: names for names in FIELDS.values()}


def flat_event(event: dict[str, Any]) -> dict[str, Any]:
    """Attributes of System, EventData and UserData."""
    found: dict[str, Any] = {}
    for name, value in event["Event"]["System"].items():
        if name == "Provider":
            found["Provider_Name"] = value["#attributes"].get("Name")
        elif isinstance(value, dict):
            found.update(value.get("#attributes") or {})
            if "#text" in value:
                found[name] = value["#text"]
        else:
            found[name] = value
    for part in ("EventData", "UserData"):
        _add(event["Event"].get(part) or {}, found)
    return {name: value for name, value in found.items() if value is not None}


def _add(values: Any, found: dict[str, Any]) -> None:
    for name, value in values.items() if isinstance(values, dict) else ():
        if isinstance(value, dict):
            _add(value, found)
        elif isinstance(value, list):
            found[name] = "\n".join(map(str, value))
        elif name != "#attributes":
            found[name] = value
