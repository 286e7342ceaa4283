"""Which options the engine answers. The others are rejected at subscribe, never ignored.

>>> check_supported(NO_OPTIONS)
>>> check_supported(Options(refresh="on demand"))
>>> check_supported(Options(refresh="on demand"), frozenset())
Traceback (most recent call last):
...
tocsin.errors.SubscriptionError: the option refresh is not supported by this engine
hint: leave it out
"""

from __future__ import annotations

from tocsin.errors import SubscriptionError
from tocsin.language.algebra import Query
from tocsin.language.options import NO_OPTIONS, Options
from tocsin.language.shape import Shape, shape_of

__all__ = ["SUPPORTED", "check_query", "check_supported"]

SUPPORTED: frozenset[str] = frozenset(
    {"window", "time", "late", "refresh", "within", "when", "check", "group", "group_memory", "policy"}
)
"""The names of options that some part of the engine answers."""

_OF_SHAPE = {Shape.STREAMJOIN: frozenset({"window", "time", "late", "memory", "policy", "alpha"})}


def check_query(query: Query) -> None:
    """Raise SubscriptionError at the first option that is not supported for queries of its shape."""
    if query.options is not NO_OPTIONS:
        check_supported(query.options, _OF_SHAPE.get(shape_of(query), SUPPORTED))


def check_supported(options: Options, supported: frozenset[str] = SUPPORTED) -> None:
    """Raise SubscriptionError at the first option that is not among the supported ones."""
    if options is NO_OPTIONS:
        return
    for name in options.given:
        if name not in supported:
            known = f": options are {', '.join(sorted(supported))}" if supported else ""
            fact = f"the option {name} is not supported by this engine"
            raise SubscriptionError(fact, f"leave it out{known}")
