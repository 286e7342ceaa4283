"""Calls that may nest deeply, with a stack that is large enough."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

__all__ = ["MAX_LEVELS", "with_deep_stack"]

MAX_LEVELS = 500
"""How deeply parentheses, or NOTs in a row, may nest in a text."""

_CALLS = 100_000
_STACK = 512 << 20  # bytes of address space; memory is allocated only as deep as the calls go

_P = ParamSpec("_P")
_T = TypeVar("_T")
_process_lock = threading.Lock()  # recursion limit and stack size are process-wide settings
_here = threading.local()


def with_deep_stack(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Call a function; if it exceeds the recursion limit, call it again in a thread with more stack.

    Parsers and rewrites recurse once per nesting level, some through twenty functions, and Python stops at
    a thousand calls. Few texts come near that; a thread has enough stack for `MAX_LEVELS` levels.

    >>> def levels(n):
    ...     return 0 if n == 0 else 1 + levels(n - 1)
    >>> with_deep_stack(levels, 5000)
    5000
    """
    try:
        return function(*args, **kwargs)
    except RecursionError:
        if getattr(_here, "deep", False):
            raise
    return _call_in_thread(lambda: function(*args, **kwargs))


def _call_in_thread(work: Callable[[], _T]) -> _T:
    def run() -> _T:
        _here.deep = True
        return work()

    with _process_lock:
        limit, size = sys.getrecursionlimit(), threading.stack_size(_STACK)
        sys.setrecursionlimit(max(limit, _CALLS))
        try:
            with ThreadPoolExecutor(1, "tocsin-deep") as thread:
                return thread.submit(run).result()
        finally:
            threading.stack_size(size)
            sys.setrecursionlimit(limit)
