"""Memory that was freed stays with the process.

Large arrays are taken from the system one by one and given back when they go, so that building an index
touches fresh pages again and again. Where pages are dear (a virtual machine that hands freed memory back
to its host: a third to a half of the time of building ten million subscriptions), a process that lives for
its engine does better to keep what it once had. That is the process's to decide, so nothing calls this
but the commands that measure; a service calls it once, at its start.

The price: the process does not shrink after its largest moment.

>>> keep_freed() in (True, False)
True
"""

from __future__ import annotations

import ctypes

__all__ = ["keep_freed"]

_MMAP_MAX, _TRIM_THRESHOLD = -4, -1  # parameters of glibc's mallopt


def keep_freed() -> bool:
    """Let the C library keep freed memory for later; whether it could be told (glibc only)."""
    try:
        tell = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(tell(_MMAP_MAX, 0)) and bool(tell(_TRIM_THRESHOLD, -1))
