"""An engine for asyncio: calls are awaited, and `async for` follows subscriptions.

>>> import asyncio, tocsin
>>> async def main():
...     async with AsyncEngine() as engine:
...         await engine.execute("CREATE STREAM hits")
...         s = await engine.subscribe("SELECT * FROM hits WHERE x > 1", subscriber="ann")
...         follower = engine.follow(s)
...         await engine.publish("hits", {"x": 1})
...         await engine.publish("hits", {"x": 2})
...         async for deltas in follower:
...             return [(d.subscriber, d.row) for d in deltas]
>>> asyncio.run(main())
[('ann', {'x': 2})]

**Where calls run.** In one thread of the async engine's own, one after the other, in the order in which they
were awaited; the loop stays free. Waking a thread takes about 0.1 ms, more than publishing an event: so
changes of a single row run directly in the loop as long as the last ones have taken less than `DIRECT`
seconds, no call is under way, and no other thread is using the engine. The first call that takes longer sends
the next ones back to the thread.

**Slow consumers.** A follower has a queue of `queue` changes' deltas. When it is full, its `slow` decides:

    wait    (the default) changes made through this async engine wait, before they are applied, until there is
            space. A follower does not wait for itself: it may change the engine in its loop. A change made
            elsewhere (by a thread that uses the plain engine, or by a listener) cannot wait: for these there
            is space for as many changes again; beyond that the follower ends as with `error`
    drop    the oldest deltas in the queue are dropped; `follower.dropped` counts them, and a warning is
            logged when it begins
    error   the follower ends: after what is in its queue, SlowConsumer is raised, with the first seq lost

**Ends.** A follower ends with `close()`, when it is dropped (after `break`, say), when its last subscription
is unsubscribed through this async engine, and when the async engine is closed: what is in its queue is still
delivered, except after `close()` of its own. A cancelled call has changed nothing if it was still waiting;
one that is running in the thread is completed and its result dropped. A cancelled follower loses nothing: go
on iterating. Several tasks may iterate one follower: each change goes to one of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import wraps
from threading import RLock
from time import perf_counter
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, get_args
from weakref import WeakSet

import numpy as np

from tocsin.engine import Engine
from tocsin.errors import TocsinError
from tocsin.limits.lookup import Fetch
from tocsin.model.columns import Index
from tocsin.model.delta import Deltas
from tocsin.subscriptions.sources import Subscription

__all__ = ["DIRECT", "AsyncEngine", "Follower", "SlowConsumer"]

DIRECT = 0.0005
"""Seconds: changes of a single row that take less run in the loop."""

_USUAL = 8  # calls in the thread before the first one in the loop
_LOG = logging.getLogger(__name__)
_P = ParamSpec("_P")
_T = TypeVar("_T")
_Slow = Literal["wait", "drop", "error"]
_Awaitable = Callable[Concatenate["AsyncEngine", _P], Coroutine[Any, Any, _T]]


def _single_change(method: Callable[Concatenate[Engine, _P], _T]) -> _Awaitable[_P, _T]:
    """A change of one row, awaited: in the loop while that takes little time, else in the thread."""

    @wraps(method)
    async def call(self: AsyncEngine, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await self._change(lambda: method(self.engine, *args, **kwargs), is_single=True)

    return call


def _any_change(method: Callable[Concatenate[Engine, _P], _T]) -> _Awaitable[_P, _T]:
    """A change, awaited: in the thread."""

    @wraps(method)
    async def call(self: AsyncEngine, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await self._change(lambda: method(self.engine, *args, **kwargs))

    return call


def _without_deltas(method: Callable[Concatenate[Engine, _P], _T]) -> _Awaitable[_P, _T]:
    """A call that has no deltas, awaited in its turn, in the thread; it waits for no follower."""

    @wraps(method)
    async def call(self: AsyncEngine, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        async with self._turn:
            return await self._in_thread(lambda: method(self.engine, *args, **kwargs))

    return call


def _reading(method: Callable[Concatenate[Engine, _P], _T]) -> _Awaitable[_P, _T]:
    """A call that changes nothing, awaited: in the thread; it waits for no follower."""

    @wraps(method)
    async def call(self: AsyncEngine, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await self._in_thread(lambda: method(self.engine, *args, **kwargs))

    return call


class SlowConsumer(TocsinError):
    """A follower did not keep up; `seq` is the first change whose deltas it has lost."""

    def __init__(self, seq: int) -> None:
        super().__init__(
            f"the follower's queue was full at seq {seq}, so it ends",
            hint="start again from the content, with a larger queue or slow='wait'",
        )
        self.seq = seq


class AsyncEngine:
    """An engine whose calls are awaited; other threads may use the plain `engine` beside it.

    Belongs to the event loop in which it is first used.
    """

    def __init__(self, engine: Engine | None = None) -> None:
        self.engine = engine or Engine()
        self._routes = _Routes()
        self._stop_listening = self.engine.on_delta(self._routes.deliver)
        self._thread = ThreadPoolExecutor(1, "tocsin-aio")
        self._calls: set[Future[Any]] = set()  # in the thread, or waiting for it
        self._turn = asyncio.Lock()  # of changes
        self._usual = -_USUAL  # counts up with each change of a row that takes less than DIRECT; 0: direct
        self._is_closed = False

    async def __aenter__(self) -> AsyncEngine:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Wait for the calls under way, then end all followers; the plain engine stays as it is."""
        self._is_closed = True
        while self._calls:
            await asyncio.wait([asyncio.wrap_future(call) for call in list(self._calls)])
        self._stop_listening()
        self._routes.close()
        self._thread.shutdown(wait=False)

    def follow(
        self, *subscriptions: Subscription | int | str, queue: int = 1024, slow: _Slow = "wait"
    ) -> Follower:
        """The deltas of these subscriptions (all, if none is given), change by change, from now on.

        A text is the name of a subscriber: all subscriptions it has now or later. An id may be that of a
        subscription to come. `queue` and `slow` are explained above.
        """
        self._check_open()
        if slow not in get_args(_Slow):
            raise TocsinError(f"slow is one of {', '.join(get_args(_Slow))}, not {slow!r}")
        if isinstance(queue, bool) or not isinstance(queue, int) or queue < 1:
            raise TocsinError(f"a queue has space for at least one change, not {queue!r}")
        wanted = frozenset(s if isinstance(s, str) else _id(s) for s in subscriptions)
        made = _Queue(asyncio.get_running_loop(), queue, slow, self._routes, wanted)
        self._routes.add(made)
        return Follower(made)

    # -- calls -------------------------------------------------------------------------------------

    async def _change(self, call: Callable[[], _T], *, is_single: bool = False) -> _T:
        """Run a change when its turn has come and all followers that make it wait have space."""
        while True:
            await self._routes.wait_for_space()  # before its turn: others may change the engine meanwhile
            async with self._turn:
                self._check_open()
                if not self._routes.blocking():
                    return await self._run_change(call, is_single)

    async def _run_change(self, call: Callable[[], _T], is_single: bool) -> _T:
        if not is_single:
            return await self._in_thread(call)
        lock = self.engine._lock
        if self._usual < 0 or self._calls or not lock.acquire(blocking=False):
            return await self._in_thread(lambda: self._measured(call))
        try:
            return self._measured(call)
        finally:
            lock.release()

    async def _in_thread(self, call: Callable[[], _T]) -> _T:
        self._check_open()
        future = self._thread.submit(call)
        self._calls.add(future)
        future.add_done_callback(self._calls.discard)
        return await asyncio.wrap_future(future)

    def _measured(self, call: Callable[[], _T]) -> _T:
        begun = perf_counter()
        try:
            return call()
        finally:
            is_usual = perf_counter() - begun < DIRECT
            self._usual = min(0, self._usual + 1) if is_usual else -_USUAL

    def _check_open(self) -> None:
        if self._is_closed:
            raise TocsinError("the async engine is closed", hint="the plain engine goes on: `.engine`")

    # -- the methods of an engine ------------------------------------------------------------------

    async def unsubscribe(self, subscription: Subscription | int) -> None:
        """Unregister a subscription. No deltas are emitted; it is followed no longer."""
        await self.unsubscribe_many([subscription])

    async def unsubscribe_many(self, subscriptions: Iterable[Subscription | int] | Index) -> None:
        """Unregister several, all or none; an array of ids is fast. They are followed no longer."""
        given = subscriptions if isinstance(subscriptions, np.ndarray) else list(subscriptions)
        async with self._turn:  # it has no deltas, so it waits for no follower
            await self._in_thread(lambda: self.engine.unsubscribe_many(given))
        self._routes.remove(_id(s) for s in given)

    async def lookup(self, table: str, fetch: Fetch, **setting: Any) -> None:
        """Fill a declared, empty table on demand (`Engine.lookup`). `fetch` runs in the engine's thread."""
        async with self._turn:
            await self._in_thread(lambda: self.engine.lookup(table, fetch, **setting))

    @property
    def last_seq(self) -> int:
        """The sequence number of the last change."""
        return self.engine.last_seq

    insert = _single_change(Engine.insert)
    update = _single_change(Engine.update)
    delete = _single_change(Engine.delete)
    upsert = _single_change(Engine.upsert)
    publish = _single_change(Engine.publish)
    publish_json = _single_change(Engine.publish_json)
    apply = _any_change(Engine.apply)
    apply_all = _any_change(Engine.apply_all)
    tick = _any_change(Engine.tick)
    refresh = _any_change(Engine.refresh)
    execute = _without_deltas(Engine.execute)
    subscribe = _without_deltas(Engine.subscribe)
    subscribe_many = _without_deltas(Engine.subscribe_many)
    subscribe_predicates = _without_deltas(Engine.subscribe_predicates)
    subscribe_texts = _without_deltas(Engine.subscribe_texts)
    subscribe_rules = _without_deltas(Engine.subscribe_rules)
    subscribe_correlations = _without_deltas(Engine.subscribe_correlations)
    subscriptions = _reading(Engine.subscriptions)
    subscribers = _reading(Engine.subscribers)
    query = _reading(Engine.query)
    schema = _reading(Engine.schema)
    schemas = _reading(Engine.schemas)
    content = _reading(Engine.content)
    contents = _reading(Engine.contents)
    parts = _reading(Engine.parts)
    rows = _reading(Engine.rows)
    explain = _reading(Engine.explain)
    limits = _reading(Engine.limits)
    plan = _reading(Engine.plan)
    stats = _reading(Engine.stats)
    save = _reading(Engine.save)
    subscription = _reading(Engine.subscription)
    state = _reading(Engine.state)
    page = _reading(Engine.page)
    with_content = _reading(Engine.with_content)
    without_content = _reading(Engine.without_content)
    recent = _reading(Engine.recent)
    records = _reading(Engine.records)
    retained_batches = _reading(Engine.retained_batches)
    enter_records = _without_deltas(Engine.enter_records)
    restore_retained = _without_deltas(Engine.restore_retained)


class Follower:
    """Iterates over the deltas of some subscriptions, change by change; made by `AsyncEngine.follow`."""

    def __init__(self, queue: _Queue) -> None:
        self._queue = queue

    @property
    def dropped(self) -> int:
        """How many deltas were dropped because the queue was full (`slow="drop"`)."""
        return self._queue.dropped

    def __aiter__(self) -> Follower:
        return self

    async def __anext__(self) -> Deltas:
        return await self._queue.get()

    async def __aenter__(self) -> Follower:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End at once; what is in the queue is discarded."""
        self._queue.discard()

    def __len__(self) -> int:
        """How many changes are in the queue."""
        return len(self._queue.items)

    def __bool__(self) -> bool:
        return True

    def __del__(self) -> None:
        self._queue.discard()


class _Queue:
    """Deltas that a follower has not read yet. Threads put them in, the loop gets them out."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, size: int, slow: _Slow, routes: _Routes, wanted: frozenset[Any]
    ) -> None:
        self.loop, self.size, self.slow, self._routes = loop, size, slow, routes
        self.wanted = wanted  # ids and names; none: everything
        self.items: deque[Deltas] = deque()
        self.dropped = 0
        self.readers: WeakSet[asyncio.Task[Any]] = WeakSet()
        self._waiters: list[asyncio.Future[None]] = []  # readers that wait for deltas
        self._has_ended = False
        self._lost: SlowConsumer | None = None

    @property
    def is_full(self) -> bool:
        return len(self.items) >= self.size

    def put(self, deltas: Deltas) -> None:
        """Append deltas, in any thread, under the lock of the routes."""
        if self._has_ended:
            return
        if self.is_full and self.slow == "drop":
            if not self.dropped:
                _LOG.warning("a follower is slow: deltas are dropped from seq %d on", self.items[0].seq[0])
            self.dropped += len(self.items.popleft())
        elif len(self.items) >= (2 * self.size if self.slow == "wait" else self.size):
            self._lost = SlowConsumer(int(deltas.seq[0]))
            self.end()
            return
        self.items.append(deltas)
        if self.is_full and self.slow == "wait":
            self._routes.full[self] = None
        self._wake()

    async def get(self) -> Deltas:
        """The next deltas, in the loop."""
        if (task := asyncio.current_task()) is not None:
            self.readers.add(task)
        while True:
            with self._routes.lock:
                if self.items:
                    found = self.items.popleft()
                    if not self.is_full:
                        self._routes.has_space(self)
                    return found
                if self._has_ended:
                    raise self._lost or StopAsyncIteration
                waiter = self.loop.create_future()
                self._waiters.append(waiter)
            try:
                await waiter
            finally:
                self._waiters.remove(waiter)

    def end(self) -> None:
        """No deltas follow; what is in the queue can still be read."""
        self._has_ended = True
        self._routes.drop(self)
        self._wake()

    def discard(self) -> None:
        """End, and discard what was not read."""
        self.items.clear()
        self.end()

    def _wake(self) -> None:
        if self._waiters:
            _set_soon(self.loop, self._waiters)


class _Routes:
    """Which queues want which deltas, and which of them are full. Its lock is held for short."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.full: dict[_Queue, None] = {}  # those that make changes wait
        self._everything: dict[_Queue, None] = {}  # those that want all deltas
        self._by_key: dict[Any, dict[_Queue, None]] = {}  # the others, by id and by name
        self._waiters: list[asyncio.Future[None]] = []  # changes that wait for space

    def add(self, queue: _Queue) -> None:
        with self.lock:
            if not queue.wanted:
                self._everything[queue] = None
            for key in queue.wanted:
                self._by_key.setdefault(key, {})[queue] = None

    def drop(self, queue: _Queue) -> None:
        """Deliver nothing to it any more."""
        with self.lock:
            self._everything.pop(queue, None)
            for key in queue.wanted:
                self._unlink(key, queue)
            self.has_space(queue)

    def remove(self, ids: Iterable[int]) -> None:
        """These subscriptions have no deltas any more: a queue that wants nothing else ends."""
        with self.lock:
            for id in ids:
                for queue in list(self._by_key.get(id, ())):
                    self._unlink(id, queue)
                    queue.wanted -= {id}
                    if not queue.wanted:
                        queue.end()

    def close(self) -> None:
        with self.lock:
            for queue in [*self._everything, *(q for some in self._by_key.values() for q in some)]:
                queue.end()

    def deliver(self, deltas: Deltas) -> None:
        """Put deltas into the queues that want them: the engine's listener, in any thread."""
        with self.lock:
            found = dict(self._everything)
            if self._by_key:
                keys = set(deltas.subscription.tolist())
                if deltas.subscriber is not None:
                    keys.update(deltas.subscriber.tolist())
                for key in self._by_key.keys() & keys:
                    found |= self._by_key[key]
            for queue in found:
                queue.put(_wanted_deltas(deltas, queue.wanted))

    def has_space(self, queue: _Queue) -> None:
        """Changes need not wait for it any more."""
        if queue in self.full:
            del self.full[queue]
            if self._waiters:
                _set_soon(queue.loop, self._waiters)

    def blocking(self) -> bool:
        """Must the current task wait for a full queue? Not for one that it reads itself."""
        if not self.full:
            return False
        task = asyncio.current_task()
        with self.lock:
            return any(task not in queue.readers for queue in self.full)

    async def wait_for_space(self) -> None:
        while self.blocking():
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                if self.blocking():
                    await waiter
            finally:
                self._waiters.remove(waiter)

    def _unlink(self, key: Any, queue: _Queue) -> None:
        linked = self._by_key.get(key)
        if linked is not None:
            linked.pop(queue, None)
            if not linked:
                del self._by_key[key]


def _wanted_deltas(deltas: Deltas, wanted: frozenset[Any]) -> Deltas:
    """Those of these ids and names; all, if nothing is named."""
    if not wanted or len(deltas) == 1:
        return deltas
    ids = [key for key in wanted if not isinstance(key, str)]
    mask = deltas.subscription == ids[0] if len(ids) == 1 else np.isin(deltas.subscription, ids)
    if len(ids) < len(wanted) and deltas.subscriber is not None:
        mask = mask | np.array([name in wanted for name in deltas.subscriber.tolist()], np.bool_)
    return deltas if mask.all() else deltas.take(mask)


def _id(subscription: Any) -> int:
    key = subscription.id if isinstance(subscription, Subscription) else subscription
    if isinstance(key, bool) or not isinstance(key, int | np.integer):
        raise TocsinError(f"a subscription, its id or a subscriber's name is wanted, not {key!r}")
    return int(key)


def _set_soon(loop: asyncio.AbstractEventLoop, waiters: list[asyncio.Future[None]]) -> None:
    """Let all that wait go on, from any thread."""

    def set_all() -> None:
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(set_all)
