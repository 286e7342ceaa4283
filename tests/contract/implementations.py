"""Every implementation of a room's protocol, found by looking: adding one adds its tests."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import Any, TypeVar

__all__ = ["implementations"]

T = TypeVar("T")


def implementations(protocol: type[T]) -> list[Any]:
    """All concrete subclasses defined in the protocol's own package, as pytest parameters by name."""
    package = importlib.import_module(protocol.__module__.rpartition(".")[0])
    found: dict[str, type[T]] = {}
    for module in pkgutil.iter_modules(package.__path__):
        members = vars(importlib.import_module(f"{package.__name__}.{module.name}")).values()
        for member in members:
            if inspect.isclass(member) and issubclass(member, protocol) and not inspect.isabstract(member):
                found[f"{member.__module__}.{member.__qualname__}"] = member
    return list(found.values())
