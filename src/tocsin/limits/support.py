"""Which options the engine answers. The others are rejected at subscribe, never ignored.

>>> check_supported(NO_OPTIONS)
>>> check_supported(Options(refresh="on demand"))
Traceback (most recent call last):
...
tocsin.errors.SubscriptionError: the option refresh is not supported by this engine
hint: leave it out: options are late, time, window
"""

from __future__ import annotations

from tocsin.errors import SubscriptionError
from tocsin.language.options import NO_OPTIONS, Options

__all__ = ["SUPPORTED", "check_supported"]

SUPPORTED: frozenset[str] = frozenset({"window", "time", "late"})
"""The names of options that some part of the engine answers."""


def check_supported(options: Options, supported: frozenset[str] = SUPPORTED) -> None:
    """Raise SubscriptionError at the first option that is not among the supported ones."""
    if options is NO_OPTIONS:
        return
    for name in options.given:
        if name not in supported:
            known = f": options are {', '.join(sorted(supported))}" if supported else ""
            fact = f"the option {name} is not supported by this engine"
            raise SubscriptionError(fact, f"leave it out{known}")
