"""Listeners: functions that are called with the deltas of every change, in the order of the changes.

A listener may use the engine. What it changes is applied at once, and its deltas are returned to it; but
listeners are called with them only after all of them have been called with the deltas of the change before:

    publish a ─► deltas a ─► first listener: publish b ─► deltas b wait
                          ─► second listener              deltas a
                          ─► first listener, second       deltas b

So every listener receives deltas in the order of their changes, and the law holds for each of them. A chain
of changes, each made because of the one before, may be `MOST_CHAINED` long.

>>> from tocsin.model.columns import Rows
>>> received, listeners = [], Listeners()
>>> stop = listeners.add(received.append)
>>> listeners.deliver(Deltas.of([1], 5, 1, Rows((), 1), [0]))
>>> stop()
>>> listeners.deliver(Deltas.of([2], 5, 1, Rows((), 1), [0]))
>>> received
[<1 deltas>]
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable
from types import CoroutineType
from typing import Any, NamedTuple

from tocsin.errors import ListenerError, TocsinError
from tocsin.model.delta import Deltas

__all__ = ["MOST_CHAINED", "Listener", "Listeners"]

MOST_CHAINED = 100
"""How many changes may follow from each other, each made by a listener of the one before."""

Listener = Callable[[Deltas], Any]

_ASYNC_HINT = "use tocsin.aio: async for deltas in AsyncEngine(engine).follow()"


class _Delivery(NamedTuple):
    """Deltas, and who listened when they arose."""

    deltas: Deltas
    listeners: tuple[Listener, ...]
    chained: int  # changes that led to this one


class Listeners:
    """Functions to call with deltas. `deliver` and `check_chain` are called under the engine's lock."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._waiting: deque[_Delivery] = deque()
        self._chained = 0  # while listeners are called: how many changes led to what they change

    def add(self, listener: Listener) -> Callable[[], None]:
        """Call it from now on; returns a function that stops it."""
        if not callable(listener):
            raise TocsinError(f"a listener is called with deltas; {listener!r} cannot be called")
        if _is_async(listener):
            raise TocsinError(f"a listener is a plain function; {listener!r} is async", hint=_ASYNC_HINT)
        self._listeners.append(listener)

        def stop() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return stop

    def check_chain(self) -> None:
        """Raise if a listener changes the engine because of too long a chain of changes."""
        if self._chained > MOST_CHAINED:
            raise TocsinError(
                f"a change led to {MOST_CHAINED} further ones, each made by a listener of the one before",
                hint="does a listener answer its own changes?",
            )

    def deliver(self, deltas: Deltas) -> None:
        """Call all listeners; if one calls this, its deltas are delivered after these."""
        if not self._listeners or not len(deltas):
            return
        self._waiting.append(_Delivery(deltas, tuple(self._listeners), self._chained))
        if self._chained:
            return
        failed: Exception | None = None
        try:
            while self._waiting:
                failed = self._call(self._waiting.popleft()) or failed
        finally:
            self._chained = 0
            self._waiting.clear()
        if failed is not None:
            raise ListenerError(f"a listener failed: {type(failed).__name__}: {failed}", deltas) from failed

    def _call(self, delivery: _Delivery) -> Exception | None:
        """Call those that have not been stopped meanwhile; returns the first error."""
        self._chained, failed = delivery.chained + 1, None
        for listener in delivery.listeners:
            if listener not in self._listeners:
                continue
            try:
                _refuse_coroutine(listener(delivery.deltas))
            except Exception as error:  # noqa: BLE001 - whatever a listener raises, the others are called
                failed = failed or error
        return failed


def _is_async(listener: Any) -> bool:
    called = getattr(listener, "__call__", None)  # noqa: B004 - the method itself, of an object
    return any(inspect.iscoroutinefunction(f) or inspect.isasyncgenfunction(f) for f in (listener, called))


def _refuse_coroutine(result: Any) -> None:
    """Raise if a plain function has returned a coroutine, which nobody would run."""
    if isinstance(result, CoroutineType):
        result.close()
        raise TocsinError("a listener returned a coroutine, which nobody runs", hint=_ASYNC_HINT)
