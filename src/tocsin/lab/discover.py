"""Finds every implementation of a protocol by walking a package and the packages below it.

Benchmarks use it to list what they can measure; the contract tests run the same tests on all it finds.

>>> from tocsin.match.base import MatchIndex
>>> sorted(index.__name__ for index in implementations(MatchIndex, "tocsin.match"))[:3]
['Auto', 'BETree', 'Counting']
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import Any, TypeVar

__all__ = ["implementations"]

T = TypeVar("T")


def implementations(protocol: type[T] | Any, package: str) -> list[type[T]]:
    """All concrete subclasses of `protocol` that are defined in the package, in order of their full names."""
    found: dict[str, type[T]] = {}
    root = importlib.import_module(package)
    for module in pkgutil.walk_packages(root.__path__, f"{package}."):
        for member in vars(importlib.import_module(module.name)).values():
            if not inspect.isclass(member) or not issubclass(member, protocol) or inspect.isabstract(member):
                continue
            if member.__module__.startswith(f"{package}."):
                found[f"{member.__module__}.{member.__qualname__}"] = member
    return [found[name] for name in sorted(found)]
