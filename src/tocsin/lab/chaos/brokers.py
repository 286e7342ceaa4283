"""Chaos for brokers: processes are killed and cables are cut under load; contents stay exact.

    server, clients (this process, the hub)          an engine with two tables, and joins over them
       |        \\
    broker 1   broker 2                              processes in network namespaces of their own
       |  \\     /  |
    broker 3 .. broker n                             each has two parents among those before it
       |
    clients                                          each knows two brokers

Every two seconds a broker gets SIGKILL and is started again, and a cable is cut, for a second. Every change
of an answer at a client is compared with the answer that the engine had at that seq; after the last fault all
clients must be at the engine's last seq within some seconds, with its very contents.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Any

import orjson

from tocsin.engine import Engine
from tocsin.errors import TocsinError
from tocsin.lab.chaos.namespaces import HUB, Namespaces
from tocsin.network.connect import Connection, RemoteSubscription, connect
from tocsin.network.server import serve

__all__ = ["BrokerChaos", "BrokerChaosResult"]

PORT = 7712
TABLES = """
CREATE TABLE stocks (symbol STRING, sector BIGINT, per BIGINT, PRIMARY KEY (symbol));
CREATE TABLE reviews (id BIGINT, sector BIGINT, rating BIGINT, note STRING, PRIMARY KEY (id))
"""
BACK = 1.0  # seconds after which a cable is mended


@dataclass
class BrokerChaosResult:
    """What happened, and what was wrong."""

    brokers: int
    seed: int
    seconds: float = 0.0
    changes: int = 0
    kills: int = 0
    cuts: int = 0
    compared: int = 0  # answers, each at a watermark
    wrong: int = 0
    settled: float = -1.0  # seconds after the last fault, until all clients had everything
    failures: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.wrong and not self.failures and self.compared > 0

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__} | {"ok": self.ok}

    def lines(self) -> list[str]:
        exact = f"all exact {self.settled:.1f} s after the last fault" if self.settled >= 0 else "NOT settled"
        return [
            f"{self.brokers} brokers, seed {self.seed}: {self.changes:,} changes in {self.seconds:.0f} s, "
            f"{self.kills} kills, {self.cuts} cables cut",
            f"{self.compared:,} answers compared at watermarks, {self.wrong} wrong; {exact}",
            *self.failures[:10],
        ]


class _Followed:
    """One query at a client, beside the answers that the engine had after each change."""

    def __init__(self, sql: str, engine: Engine, connection: Connection) -> None:
        self.sql, self.number = sql, engine.subscribe(sql).id
        self.remote: RemoteSubscription = connection.subscribe(sql, seconds=60)
        self.bag: Counter[bytes] = Counter(map(_value, self.remote.content()))
        self.truth: Counter[bytes] = Counter(map(_value, engine.content(self.number)))
        self.seqs = [0]  # at which it changed
        self.states = [_digest(self.truth)]  # and a digest of the engine's answer since


class BrokerChaos:
    """One run."""

    def __init__(
        self,
        brokers: int,
        seed: int,
        *,
        seconds: float = 60.0,
        every: float = 2.0,
        rate: float = 50.0,
        clients: int = 8,
        repository: Sequence[int] = (),
        say: Callable[[str], object] = print,
    ) -> None:
        self._random = random.Random(seed)
        self._result = BrokerChaosResult(brokers, seed)
        self._seconds, self._every, self._rate, self._clients = seconds, every, rate, clients
        self._repository = set(repository)
        self._say = say
        self._engine = Engine()
        self._followed: list[_Followed] = []
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._known: dict[str, set[tuple[Any, ...]]] = {"stocks": set(), "reviews": set()}
        self._ended = Event()

    def run(self) -> BrokerChaosResult:
        """Start everything, disturb it, compare."""
        self._engine.execute(TABLES)
        for _ in range(200):
            self._change()
        with ExitStack() as stack:
            self._net = stack.enter_context(Namespaces(self._result.brokers))
            server = stack.enter_context(serve(self._engine, "0.0.0.0:0"))
            self._lay_cables(server.port)
            stack.callback(self._stop_brokers)
            for broker in self._up:
                self._start(broker)
            for number in range(self._clients):
                addresses = self._addresses(number)
                connection = stack.enter_context(connect(*addresses))
                for _ in range(3):
                    self._followed.append(_Followed(self._query(), self._engine, connection))
            self._say(f"{len(self._followed)} subscriptions at {self._clients} clients")
            self._disturb()
        return self._result

    # -- processes and cables ------------------------------------------------------------------------

    def _lay_cables(self, port: int) -> None:
        """By broker the addresses of its parents, and its address at the hub."""
        self._up: dict[int, list[str]] = {}
        self._at_hub: dict[int, str] = {}
        for broker in range(1, self._result.brokers + 1):
            ours, self._at_hub[broker] = self._net.connect(HUB, broker)
            self._up[broker] = [f"{ours}:{port}"]
            if broker > 2:
                parents = self._random.sample(range(1, broker), 2)
                self._up[broker] = [f"{self._net.connect(above, broker)[0]}:{PORT}" for above in parents]

    def _addresses(self, client: int) -> list[str]:
        """Brokers for a client: the last ones first."""
        brokers = sorted(self._at_hub, reverse=True)
        two = [brokers[client % len(brokers)], brokers[(client + 1) % len(brokers)]]
        return [f"{self._at_hub[broker]}:{PORT}" for broker in two]

    def _start(self, broker: int) -> None:
        words = [sys.executable, "-m", "tocsin", "broker", "--name", f"broker {broker}"]
        words += ["--listen", f"0.0.0.0:{PORT}", *(word for up in self._up[broker] for word in ("--up", up))]
        if broker in self._repository:
            words += ["--repository", "1MB"]
        self._processes[broker] = subprocess.Popen(
            self._net.command(broker, *words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def _stop_brokers(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait(10)

    # -- load ----------------------------------------------------------------------------------------

    def _query(self) -> str:
        low, rating = self._random.randrange(0, 80), self._random.randrange(0, 8)
        return (
            "SELECT symbol, per, id, rating, note FROM stocks JOIN reviews USING (sector) "
            f"WHERE per BETWEEN {low} AND {low + self._random.randrange(5, 30)} "
            f"AND rating BETWEEN {rating} AND {rating + self._random.randrange(1, 4)}"
        )

    def _change(self) -> None:
        """Change a row, and note the answers after it."""
        draw = self._random.randrange
        if draw(2):
            table, row = "stocks", {"symbol": f"s{draw(60)}", "sector": draw(12), "per": draw(100)}
            key = {"symbol": row["symbol"]}
        else:
            note = f"note {draw(1_000_000)}" * 10
            table, row = "reviews", {"id": draw(60), "sector": draw(12), "rating": draw(10), "note": note}
            key = {"id": row["id"]}
        known = self._known[table]
        if draw(5) == 0 and tuple(key.values()) in known:
            known.remove(tuple(key.values()))
            change: dict[str, Any] = {**key, "_op": "delete"}
        else:
            known.add(tuple(key.values()))
            change = {**row, "_op": "upsert"}
        deltas = self._engine.apply(table, [change])
        seq, touched = self._engine.last_seq, set()
        by_number = {followed.number: followed for followed in self._followed}
        for delta in deltas:
            if (followed := by_number.get(delta.subscription)) is not None:
                followed.truth[_value(delta.row)] += delta.sign
                touched.add(delta.subscription)
        for number in touched:
            by_number[number].states.append(_digest(by_number[number].truth))
            by_number[number].seqs.append(seq)

    def _load(self) -> None:
        begun = time.monotonic()
        while not self._ended.is_set():
            self._change()
            self._result.changes += 1
            time.sleep(max(0.0, begun + self._result.changes / self._rate - time.monotonic()))

    # -- faults --------------------------------------------------------------------------------------

    def _disturb(self) -> None:
        load = Thread(target=self._load, daemon=True)
        begun = last = time.monotonic()
        load.start()
        cables = self._net.cables
        while (last := time.monotonic()) + self._every < begun + self._seconds:
            broker, cable = self._random.choice(list(self._processes)), self._random.choice(cables)
            self._processes[broker].send_signal(signal.SIGKILL)
            self._net.cut(cable)
            self._processes[broker].wait(10)
            self._start(broker)
            self._result.kills += 1
            self._result.cuts += 1
            time.sleep(BACK)
            self._net.mend(cable)
            self._compare()
            if self._result.kills % 5 == 0:
                self._say(f"{self._result.kills} faults, {self._result.compared:,} answers compared")
            if last + 2 * self._every >= begun + self._seconds:
                break
            time.sleep(max(0.0, last + self._every - time.monotonic()))
        self._ended.set()
        load.join()
        self._result.seconds = time.monotonic() - begun
        self._settle(last)

    def _settle(self, last: float) -> None:
        """All clients come to the last seq, and have its contents."""
        for number, followed in enumerate(self._followed):
            try:
                followed.remote.wait(self._engine.last_seq, 30)
            except TocsinError as error:
                self._result.failures.append(f"subscription {number}: {error}")
        if not self._result.failures:
            self._result.settled = time.monotonic() - last
        self._compare()
        for number, followed in enumerate(self._followed):
            if Counter(map(_value, followed.remote.content())) != +followed.truth:
                self._result.failures.append(f"subscription {number} has another content than the engine")

    def _compare(self) -> None:
        """Compare what has come to clients with the answers of the engine at the same seqs."""
        for number, followed in enumerate(self._followed):
            while (change := followed.remote.next(0)) is not None:
                for delta in change.deltas:
                    followed.bag[_value(delta.row)] += delta.sign
                self._result.compared += 1
                if _digest(followed.bag) != followed.states[bisect_right(followed.seqs, change.seq) - 1]:
                    self._result.wrong += 1
                    self._result.failures.append(f"subscription {number} is wrong at seq {change.seq}")


def _value(row: Any) -> bytes:
    return orjson.dumps(row, option=orjson.OPT_SORT_KEYS)


def _digest(bag: Counter[bytes]) -> int:
    return hash(frozenset((value, count) for value, count in bag.items() if count))
