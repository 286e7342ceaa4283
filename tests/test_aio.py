"""The async engine: awaited calls, followers, slow consumers, cancellation, closing."""

from __future__ import annotations

import asyncio
import gc
import inspect
import threading
import time
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest

import tocsin
from tocsin.aio import DIRECT, AsyncEngine, Follower, SlowConsumer
from tocsin.errors import SubscriptionError, TocsinError


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in an event loop of its own, and let it take 60 seconds at most."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), 60))

    return run


async def hits(engine: AsyncEngine, *ids: int) -> None:
    """A stream; subscription i receives the events with x >= i."""
    await engine.execute("CREATE STREAM hits")
    for id in ids:
        await engine.subscribe(f"SELECT * FROM hits WHERE x >= {id}", id=id, subscriber=f"s{id % 2}")


async def drained(follower: Follower) -> list[tuple[int, int]]:
    """(seq, subscription) of all that is in the queue."""
    out: list[tuple[int, int]] = []
    while len(follower):
        out.extend((d.seq, d.subscription) for d in await anext(follower))
    return out


# -- calls -----------------------------------------------------------------------------------------


@in_loop
async def test_calls_answer_as_those_of_a_plain_engine() -> None:
    async with AsyncEngine() as engine:
        await engine.execute("CREATE TABLE t (id BIGINT, x BIGINT, PRIMARY KEY (id))")
        s = await engine.subscribe("SELECT x FROM t WHERE x > 1", subscriber="ann")
        assert [(d.sign, d.row) for d in await engine.insert("t", {"id": 1, "x": 5})] == [(1, {"x": 5})]
        await engine.update("t", {"id": 1, "x": 6})
        await engine.upsert("t", {"id": 2, "x": 7})
        await engine.delete("t", {"id": 2})
        assert await engine.content(s) == [{"x": 6}] and engine.last_seq == 4
        assert await engine.subscribers() == {"ann": [1]}
        assert (await engine.explain(s, {"id": 1})).held
        with pytest.raises(TocsinError, match="there is no"):
            await engine.insert("nothing", {"id": 1})
        await engine.unsubscribe(s)
        with pytest.raises(SubscriptionError):
            await engine.content(s)


def test_every_method_of_an_engine_can_be_awaited() -> None:
    apart = {"ids_of", "load", "on_delta", "on_step", "parts", "queries", "restoring", "step"}
    names = {
        name
        for kind in tocsin.Engine.__mro__[:-1]
        for name, value in vars(kind).items()
        if callable(value) and name[0] != "_"
    }
    assert names - apart <= {name for name in vars(AsyncEngine) if name[0] != "_"}
    for name in names - apart:
        assert inspect.iscoroutinefunction(getattr(AsyncEngine, name)), name


@in_loop
async def test_the_loop_goes_on_while_a_call_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    engine = AsyncEngine()
    await hits(engine, 1)
    engine.engine.on_delta(lambda deltas: released.wait(30))
    publishing = asyncio.create_task(engine.publish("hits", {"x": 1}))
    reading = asyncio.create_task(engine.subscriptions())
    await asyncio.sleep(0.05)
    assert not publishing.done() and not reading.done()
    released.set()
    assert len(await publishing) == 1 and len(await reading) == 1
    await engine.close()


@in_loop
async def test_changes_of_one_row_run_in_the_loop_once_they_are_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tocsin.aio.DIRECT", 60.0)
    threads: list[int] = []
    async with AsyncEngine() as engine:
        await hits(engine, 1)
        engine.engine.on_delta(lambda deltas: threads.append(threading.get_ident()))
        for _ in range(12):
            await engine.publish("hits", {"x": 1})
        here = threading.get_ident()
        assert threads[0] != here and threads[-1] == here
        monkeypatch.setattr("tocsin.aio.DIRECT", 0.0)
        await engine.publish("hits", {"x": 1})
        await engine.publish("hits", {"x": 1})
        assert threads[-2] == here and threads[-1] != here, "one slow call sends the next ones to the thread"
    assert 0 < DIRECT < 0.01


@in_loop
async def test_a_cancelled_call_leaves_the_engine_in_order() -> None:
    released = threading.Event()
    async with AsyncEngine() as engine:
        await hits(engine, 1)
        stop = engine.engine.on_delta(lambda deltas: released.wait(30))
        running = asyncio.create_task(engine.publish("hits", {"x": 1}))
        waiting = asyncio.create_task(engine.publish("hits", {"x": 2}))
        await asyncio.sleep(0.05)
        waiting.cancel()
        running.cancel()
        await asyncio.gather(running, waiting, return_exceptions=True)
        stop()
        released.set()
        assert len(await engine.publish("hits", {"x": 3})) == 1
        assert engine.last_seq == 2, "what ran was completed, what waited has changed nothing"


@in_loop
async def test_a_closed_engine_says_so_and_the_plain_one_goes_on() -> None:
    engine = AsyncEngine()
    await hits(engine, 1)
    follower = engine.follow()
    await engine.publish("hits", {"x": 1})
    await engine.close()
    await engine.close()
    assert [len(deltas) async for deltas in follower] == [1], "what was in the queue is delivered"
    for call in (engine.publish("hits", {"x": 1}), engine.stats()):
        with pytest.raises(TocsinError, match="closed"):
            await call
    with pytest.raises(TocsinError, match="closed"):
        engine.follow()
    assert len(engine.engine.publish("hits", {"x": 1})) == 1


# -- followers -------------------------------------------------------------------------------------


@in_loop
async def test_followers_of_one_several_all_and_a_subscriber() -> None:
    async with AsyncEngine() as engine:
        await hits(engine, 1, 2, 3)
        one, several, every, named, both = (
            engine.follow(*which) for which in ((2,), (1, 3), (), ("s0",), ("s0", 3))
        )
        for x in (1, 2, 3):
            await engine.publish("hits", {"x": x})
        assert await drained(one) == [(2, 2), (3, 2)]
        assert await drained(several) == [(1, 1), (2, 1), (3, 1), (3, 3)]
        assert await drained(every) == [(1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (3, 3)]
        assert await drained(named) == [(2, 2), (3, 2)]
        assert await drained(both) == [(2, 2), (3, 2), (3, 3)]
        await engine.subscribe("SELECT * FROM hits", id=4, subscriber="s0")
        await engine.publish("hits", {"x": 0})
        assert await drained(named) == [(4, 4)], "later subscriptions of the subscriber too"
        assert await drained(one) == []


@in_loop
async def test_a_follower_waits_for_what_other_threads_publish() -> None:
    async with AsyncEngine() as engine:
        await hits(engine, 1)

        def publish() -> None:
            for n in range(100):
                engine.engine.publish("hits", {"x": n + 1})

        thread = threading.Thread(target=publish)
        seen: list[int] = []
        follower = engine.follow(1)
        thread.start()
        async for deltas in follower:
            seen.extend(d.row["x"] for d in deltas)
            if len(seen) == 100:
                break
        thread.join()
        assert seen == list(range(1, 101))


@in_loop
async def test_followers_end_when_their_subscriptions_do() -> None:
    async with AsyncEngine() as engine:
        await hits(engine, 1, 2)
        one, both, named = engine.follow(1), engine.follow(1, 2), engine.follow("s1")
        await engine.publish("hits", {"x": 1})
        waiting = asyncio.create_task(anext(named))
        await asyncio.sleep(0)
        await engine.unsubscribe(1)
        assert [len(deltas) async for deltas in one] == [1]
        await engine.publish("hits", {"x": 2})
        assert await drained(both) == [(1, 1), (2, 2)]
        assert len(await waiting) == 1
        await engine.unsubscribe_many([2])
        assert [deltas async for deltas in both] == []


@in_loop
async def test_a_follower_is_cancelled_without_loss_and_closed_at_once() -> None:
    async with AsyncEngine() as engine:
        await hits(engine, 1)
        async with engine.follow(1) as follower:
            waiting = asyncio.create_task(anext(follower))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            await engine.publish("hits", {"x": 1})
            assert len(await anext(follower)) == 1
            await engine.publish("hits", {"x": 1})
        assert [deltas async for deltas in follower] == []


@in_loop
async def test_a_dropped_follower_holds_up_nobody() -> None:
    async with AsyncEngine() as engine:
        await hits(engine, 1)
        for _ in range(3):
            async with asyncio.timeout(30):
                follower = engine.follow(1, queue=1)
                await engine.publish("hits", {"x": 1})
                async for _deltas in follower:
                    break
                del follower
                gc.collect()
                await engine.publish("hits", {"x": 1})
        assert not engine._routes.full and not engine._routes._by_key


# -- slow consumers --------------------------------------------------------------------------------


@in_loop
async def test_changes_wait_for_a_slow_follower() -> None:
    async with AsyncEngine() as engine:
        await hits(engine, 1)
        follower = engine.follow(1, queue=2)

        async def publish(n: int) -> None:
            await engine.publish("hits", {"x": n})

        publishing = [asyncio.create_task(publish(n)) for n in range(1, 7)]
        await asyncio.sleep(0.2)
        assert len(follower) == 2 and engine.last_seq == 2
        seen = []
        for _ in range(6):
            seen.append((await anext(follower)).seq.tolist()[0])
            await asyncio.sleep(0.01)
            assert len(follower) <= 2
        assert seen == [1, 2, 3, 4, 5, 6]
        await asyncio.gather(*publishing)


@in_loop
async def test_a_follower_may_change_the_engine_in_its_loop() -> None:
    async with AsyncEngine() as engine:
        await hits(engine, 1)
        follower = engine.follow(1, queue=1)
        other = asyncio.create_task(engine.publish("hits", {"x": 10}))
        count = 0
        async for deltas in follower:
            count += 1
            if deltas.rows()[0]["x"] == 10:
                for x in (11, 12):
                    await engine.publish("hits", {"x": x})
            if count == 3:
                break
        await other


@in_loop
async def test_a_full_queue_drops_and_counts_or_ends_with_an_error(caplog: pytest.LogCaptureFixture) -> None:
    async with AsyncEngine() as engine:
        await hits(engine, 1)
        dropping = engine.follow(1, queue=2, slow="drop")
        failing = engine.follow(1, queue=2, slow="error")
        for x in range(1, 6):
            await engine.publish("hits", {"x": x})
        assert await drained(dropping) == [(4, 1), (5, 1)] and dropping.dropped == 3
        assert len([r for r in caplog.records if "dropped from seq 1" in r.message]) == 1
        assert await drained(failing) == [(1, 1), (2, 1)]
        with pytest.raises(SlowConsumer, match="seq 3") as caught:
            await anext(failing)
        assert caught.value.seq == 3
        assert len(await engine.publish("hits", {"x": 1})) == 1


@in_loop
async def test_what_other_threads_change_cannot_wait_and_nothing_is_lost_silently() -> None:
    async with AsyncEngine() as engine:
        await hits(engine, 1)
        follower = engine.follow(1, queue=2)
        thread = threading.Thread(target=lambda: [engine.engine.publish("hits", {"x": 1}) for _ in range(6)])
        thread.start()
        while thread.is_alive():
            await asyncio.sleep(0.01)
        assert await drained(follower) == [(1, 1), (2, 1), (3, 1), (4, 1)]
        with pytest.raises(SlowConsumer, match="seq 5"):
            await anext(follower)


@in_loop
async def test_bad_arguments_are_rejected() -> None:
    async with AsyncEngine() as engine:
        await hits(engine, 1)
        with pytest.raises(TocsinError, match="slow is one of wait, drop, error"):
            engine.follow(1, slow="never")  # type: ignore[arg-type]
        with pytest.raises(TocsinError, match="at least one change"):
            engine.follow(1, queue=0)
        with pytest.raises(TocsinError, match="name is wanted"):
            engine.follow(1.5)  # type: ignore[arg-type]


@in_loop
async def test_following_costs_little() -> None:
    async with AsyncEngine() as engine:
        await hits(engine, 1)
        others = [engine.follow(n) for n in range(1000, 3000)]
        deltas = await engine.publish("hits", {"x": 1})
        begun = time.perf_counter()
        for _ in range(100):
            engine._routes.deliver(deltas)
        assert time.perf_counter() - begun < 0.1, "followers of other subscriptions cost nothing"
        assert len(others) == 2000


def test_what_has_no_deltas_waits_for_no_follower() -> None:
    async def scene() -> None:
        async with AsyncEngine() as e:
            await e.execute("CREATE STREAM s")
            followed = await e.subscribe("SELECT * FROM s WHERE y = 1")
            follower = e.follow(followed, queue=1)
            await e.publish("s", {"y": 1})
            await asyncio.wait_for(e.subscribe("SELECT * FROM s WHERE y = 2"), 5)
            await asyncio.wait_for(e.unsubscribe(followed), 5)
            del follower

    asyncio.run(scene())
