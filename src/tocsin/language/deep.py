"""Room for texts that nest deeply: the same work once more, on a larger stack.

Parsers and rewrites call themselves once per level of nesting, some of them through twenty
functions, and Python stops at a thousand calls. Few texts come near that. For one that
does, `deeply` repeats the work in a thread of its own, whose stack has room for `MOST_LEVELS`
levels; all others are answered by the plain call.

>>> def levels(n):
...     return 0 if n == 0 else 1 + levels(n - 1)
>>> deeply(levels, 5000)
5000
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

__all__ = ["MOST_LEVELS", "deeply"]

MOST_LEVELS = 500
"""How deeply parentheses, and NOTs without any, may be nested in a text."""

_CALLS = 100_000
_STACK = 512 << 20  # bytes of addresses; memory is taken only as far as the calls reach

_P = ParamSpec("_P")
_T = TypeVar("_T")
_one_at_a_time = threading.Lock()  # the limit and the stack's size are settings of the whole process
_here = threading.local()


def deeply(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """`function(*args, **kwargs)`, begun again with more stack if it runs out."""
    try:
        return function(*args, **kwargs)
    except RecursionError:
        if getattr(_here, "deep", False):
            raise
    return _in_a_thread(lambda: function(*args, **kwargs))


def _in_a_thread(work: Callable[[], _T]) -> _T:
    def run() -> _T:
        _here.deep = True
        return work()

    with _one_at_a_time:
        limit, size = sys.getrecursionlimit(), threading.stack_size(_STACK)
        sys.setrecursionlimit(max(limit, _CALLS))
        try:
            with ThreadPoolExecutor(1, "tocsin-deep") as thread:
                return thread.submit(run).result()
        finally:
            threading.stack_size(size)
            sys.setrecursionlimit(limit)
