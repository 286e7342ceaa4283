"""Chaos for the server: it is killed under load, again and again, and nothing may be lost or doubled.

    publishers ─┐                            ┌─► followers: NDJSON, SSE, WebSocket, long poll
    churn      ─┴─► `tocsin serve`, killed ──┴─► a webhook

Each run is one life of a server over the same folder: it starts, works, and gets SIGKILL at a random moment
or at a step of `tocsin.server.steps`. Before the next kill, clients rest for a moment and all is compared:

    lost changes   a row or event that was acknowledged and is not there
    lost, doubled  a delta that a follower did not receive, or more than once
    wrong          a content that is not the reference's, or not what a follower has kept

Publishers, followers and the webhook live on through all runs and resume by their tokens. How long a server
may take to answer grows with the load of the machine. A fault of the run itself (a socket that cannot be
opened) is raised; a server that ends by itself, or does not answer, is wrong.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from threading import Event
from typing import Any

from tocsin.engine import Engine
from tocsin.lab.chaos.server_clients import FORMS, ChaosFollower, Churn, Publisher, Receiver, Worker
from tocsin.lab.chaos.server_process import start_server
from tocsin.model.json_rows import row_json
from tocsin.reference import evaluate
from tocsin.remote import Remote, RemoteError
from tocsin.server.steps import STEPS

__all__ = ["ServerChaos", "ServerChaosResult"]

SCHEMA = """
CREATE TABLE stocks (symbol STRING, per BIGINT, risk BIGINT, PRIMARY KEY (symbol));
CREATE TABLE reviews (id BIGINT, symbol STRING, rating BIGINT, PRIMARY KEY (id));
CREATE STREAM hits (worker BIGINT, n BIGINT, ms BIGINT)
"""
TEXTS = (
    "SELECT * FROM stocks WHERE per > {n}",
    "SELECT stocks.symbol, rating FROM stocks JOIN reviews USING (symbol) WHERE per > {n}",
    "SELECT symbol, per FROM stocks WHERE risk >= {n} ORDER BY per, symbol LIMIT 2",
    "SELECT COUNT(*), SUM(per) FROM stocks WHERE risk <= {n}",
    "SELECT DISTINCT risk FROM stocks WHERE per <= {n}",
    "SELECT MAX(per) FROM stocks WHERE risk <= {n}",
)
EVERYTHING = {101: "SELECT * FROM stocks", 102: "SELECT * FROM reviews"}
EVENTS = {103: 0, 104: 3}  # id: the least ms
KEYS = {"stocks": ("symbol",), "reviews": ("id",)}
PATIENCE = 120.0  # seconds, on a machine that has nothing else to do
_FOREVER = 1e9  # seconds: a request is repeated until it is answered; the run decides when to give up
_WORK = (0.3, 1.2)  # seconds of load before a random kill
_STEP_BY = 4.0  # seconds after which a step that was not reached is not waited for, likewise


class ServerFailure(Exception):
    """What the server did wrong, other than a wrong answer: it ended, or does not answer."""


@dataclass
class ServerChaosResult:
    """What all runs did and found."""

    asked: int = 0
    runs: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    changes: int = 0
    deltas: int = 0
    resumes: int = 0
    compared: int = 0  # contents
    lost_changes: int = 0
    lost: int = 0
    doubled: int = 0
    wrong: int = 0
    resets: Counter[str] = field(default_factory=Counter)
    webhooks: int = 0
    webhooks_again: int = 0
    restart_seconds: float = 0.0
    seconds: float = 0.0
    differences: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)  # of the machine: what was repeated

    @property
    def ok(self) -> bool:
        """Nothing is lost, doubled or wrong, and all runs that were asked for were done."""
        return self.is_right and self.runs >= self.asked

    @property
    def is_right(self) -> bool:
        """Nothing of what was done is lost, doubled or wrong."""
        return not (self.lost_changes or self.lost or self.doubled or self.wrong)

    def add(self, other: ServerChaosResult) -> None:
        """Add the result of more runs."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> ServerChaosResult:
        """What `to_dict` gave."""
        counts = {"kills": Counter(found["kills"]), "resets": Counter(found["resets"])}
        return cls(**{name: value for name, value in found.items() if name != "ok"} | counts)

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "kills": dict(self.kills), "resets": dict(self.resets), "ok": self.ok}

    def lines(self) -> list[str]:
        kills = ", ".join(f"{count} {where}" for where, count in sorted(self.kills.items()))
        return [
            f"{self.runs} of {self.asked} kills in {self.seconds:.0f} s: {kills}",
            f"{self.requests:,} requests acknowledged, {self.deltas:,} deltas followed,"
            f" {self.resumes} resumes, {self.compared:,} contents compared,"
            f" {self.webhooks} webhooks ({self.webhooks_again} again),"
            f" a restart took {self.restart_seconds / max(1, self.runs):.1f} s after its imports",
            f"acknowledged changes lost {self.lost_changes}, deltas lost {self.lost},"
            f" doubled {self.doubled}, wrong {self.wrong}",
            *self.differences[:10],
            *self.faults,
        ]


class ServerChaos:
    """The server, its clients, and what they must agree on; `first` is the number of the first run."""

    def __init__(
        self, seed: int, folder: Path, say: Callable[[str], object] = print, *, first: int = 0
    ) -> None:
        self.result = ServerChaosResult()
        self._seed, self._say, self._random = seed, say, Random(f"{seed} kills")
        self._first = first
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self._port = _free_port()
        self._process: BaseProcess | None = None
        self.url = f"http://127.0.0.1:{self._port}"
        self._go = Event()
        self._last: list[dict[str, Any]] = []
        self._publishers: list[Publisher] = []
        self._followers: list[ChaosFollower] = []
        self._churn: Churn | None = None
        self._receiver: Receiver | None = None
        self._reference = Engine()
        self._reference.execute(SCHEMA)

    def run(self, runs: int) -> ServerChaosResult:
        """Kill it so many times, or until something is wrong."""
        began, result = time.monotonic(), self.result
        try:
            self._start("-", 0)
            self._remote = Remote(self.url, retry=_FOREVER)
            self._set_up()
            for number in range(self._first, self._first + runs):
                where = self._live(number)
                self._check()
                result.runs += 1
                result.kills[where] += 1
                if not result.is_right:
                    break
        except ServerFailure as failure:
            self._note("wrong", 1, str(failure))
        finally:
            self._end()
            result.seconds = time.monotonic() - began
        return result

    # -- a life --------------------------------------------------------------------------------------

    def _set_up(self) -> None:
        self._remote.define(SCHEMA)
        for id, sql in EVERYTHING.items():
            self._remote.subscribe(sql, id=id)
        for id, least in EVENTS.items():
            self._remote.subscribe(f"SELECT worker, n FROM hits WHERE ms >= {least}", id=id, subscriber="ann")
        self._receiver = Receiver()
        hook = {"name": "hook", "to": self._receiver.url, "subscriptions": [*EVENTS], "first_wait": 0.05,
                "longest_wait": 0.5, "tries": 100}  # fmt: skip
        self._remote.call("POST", "/deliveries", hook)
        self._churn = Churn(self.url, self._seed, self._go, TEXTS)
        wanted: tuple[dict[str, str], ...] = ({}, {"subscriber": "ann"}, {}, {"subscription": "101,102,103"})
        for form, params in zip(FORMS, wanted, strict=True):
            self._followers.append(ChaosFollower(form, self.url, params, self._seed))
        began = time.monotonic()
        while not all(follower.contents.token for follower in self._followers):
            self._raise_errors()
            _wait(began, "a follower has no snapshot")
        self._publishers = [Publisher(number, self.url, self._seed, self._go) for number in range(3)]

    def _live(self, number: int) -> str:
        """Work until a kill; then the server is started again. Returns where it was killed."""
        step = STEPS[number // 2 % len(STEPS)] if number % 2 else "-"
        many = step.startswith(("commit", "deliver", "plan", "send"))
        times = self._random.randint(1, 40 if many else 2)
        if step != "-":
            self._kill()
            self._start(step, times)
        self._go.set()
        if step == "-":
            time.sleep(self._random.uniform(*_WORK))
        else:
            end = time.monotonic() + _STEP_BY * _busy()
            while self._is_alive() and time.monotonic() < end:
                time.sleep(0.02)
        where = "at random" if self._is_alive() else step
        if where == "-":
            raise ServerFailure(f"the server ended; its log is {self.folder}/server.log")
        self._kill()
        self._raise_errors()
        start = time.monotonic()
        self._start("-", 0)
        self.result.restart_seconds += time.monotonic() - start
        return where

    def _start(self, step: str, times: int) -> None:
        self._process = start_server(self.folder, self._port, step, times)
        began = time.monotonic()
        with Remote(self.url, retry=0) as probe:
            while True:
                with suppress(RemoteError):
                    probe.stats()
                    return
                if not self._is_alive():
                    if step != "-":  # it was reached while starting
                        return
                    raise ServerFailure(f"the server ended; its log is {self.folder}/server.log")
                _wait(began, f"the server does not answer; its log is {self.folder}/server.log")

    def _is_alive(self) -> bool:
        """Whether it runs, or else was killed: it must not end by itself."""
        if self._process is None or self._process.is_alive():
            return self._process is not None
        if self._process.exitcode != -signal.SIGKILL:
            code = self._process.exitcode
            raise ServerFailure(f"the server ended with {code}; its log is {self.folder}/server.log")
        return False

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()

    @property
    def _workers(self) -> list[Worker]:
        return [*self._publishers, *([self._churn] if self._churn is not None else [])]

    @property
    def _clients(self) -> list[Worker | ChaosFollower]:
        return [*self._workers, *self._followers]

    def _end(self) -> None:
        self._go.clear()
        for client in self._clients:
            client.end()
        self._kill()
        if self._receiver is not None:
            self._receiver.close()

    def _raise_errors(self) -> None:
        for error in [client.error for client in self._clients if client.error is not None]:
            if isinstance(error, RemoteError) and error.status:
                raise ServerFailure(f"a request was answered {error.status}: {error}")
            if isinstance(error, AssertionError):
                raise ServerFailure(str(error))
            raise error

    # -- what must hold ------------------------------------------------------------------------------

    def _check(self) -> None:
        assert self._churn is not None
        self._go.clear()
        began = time.monotonic()
        while not all(worker.rests() for worker in self._workers):
            self._raise_errors()
            _wait(began, "a request is not answered")
        self._raise_errors()
        result = self.result
        result.requests = sum(p.requests for p in self._publishers) + self._churn.requests
        last = {"worker": -1, "n": len(self._last), "ms": max(EVENTS.values())}  # concerns every follower
        token = self._remote.publish("hits", last).token
        self._last.append(last)
        tables = {
            "stocks": [row for p in self._publishers for row in p.stocks.values()],
            "reviews": [row for p in self._publishers for row in p.reviews.values()],
        }
        served = self._compare_contents(tables, self._churn.model)
        events = [*self._last, *(event for p in self._publishers for event in p.events)]
        result.changes = len(events)
        self._compare_followers(token, served, events)
        self._compare_webhook(events)
        result.deltas = sum(f.deltas for f in self._followers)
        result.resumes = sum(f.resumes for f in self._followers)
        result.resets = sum((f.resets for f in self._followers), Counter())

    def _compare_contents(
        self, tables: dict[str, list[dict[str, Any]]], registered: dict[int, tuple[str, bool]]
    ) -> dict[int, Counter[str]]:
        served = {}
        active = {id: text for id, (text, is_active) in registered.items() if is_active}
        for id, sql in (EVERYTHING | active).items():
            found = served[id] = _bag(self._remote.content(id))
            query = self._reference.plan(sql).query
            expected = _bag(evaluate(query, tables, KEYS))
            self.result.compared += 1
            if id in EVERYTHING:
                self._note("lost_changes", (expected - found).total(), f"{sql}: {expected - found} lost")
                self._note("wrong", (found - expected).total(), f"{sql}: {found - expected} too many")
            else:
                self._note("wrong", int(found != expected), f"{id} {sql}: {found}, expected {expected}")
        for id in registered.keys() - active.keys():
            served[id] = _bag(self._remote.content(id))
            self._note("wrong", served[id].total(), f"{id} rests and has {served[id]}")
        listed = {one["id"] for one in self._remote.subscriptions(limit=1000)["subscriptions"]}
        wanted = {*EVERYTHING, *EVENTS, *registered}
        self._note("lost_changes", len(listed ^ wanted), f"subscriptions {listed ^ wanted}")
        return served

    def _compare_followers(
        self, token: str, served: dict[int, Counter[str]], events: list[dict[str, Any]]
    ) -> None:
        for follower in self._followers:
            contents = self._waited(follower, token)
            ids = served.keys() if follower.form != "poll" else EVERYTHING.keys()
            for id in ids - (EVERYTHING.keys() if follower.form == "sse" else set()):
                kept = _bag(contents.rows(id))
                what = f"{follower.form} keeps {kept} of {id}, the server {served[id]}"
                self._note("wrong", int(kept != served[id]), what)
            wanted = [103] if follower.form == "poll" else [*EVENTS]
            self._compare_events(follower.form, follower.events, _expected(events, wanted))

    def _waited(self, follower: ChaosFollower, token: str) -> Any:
        """The contents of a follower once it has come so far."""
        began = time.monotonic()
        while True:
            contents = follower.contents
            with suppress(TimeoutError):
                contents.wait(token, timeout=0.2)
                return contents
            self._raise_errors()
            _wait(began, f"{follower.form} is at {contents.token}, not at {token}")

    def _compare_webhook(self, events: list[dict[str, Any]]) -> None:
        """Once nothing waits, and the last event of this run has arrived for all its subscriptions."""
        assert self._receiver is not None
        began, last = time.monotonic(), {(id, -1, len(self._last) - 1) for id in EVENTS}
        while (missing := last - self._receiver.received().keys()) or self._remote.call(
            "GET", "/deliveries/hook"
        )["waiting"]:
            self._raise_errors()
            _wait(began, f"the webhook has not received {missing}")
        self._compare_events("webhook", self._receiver.received(), _expected(events, [*EVENTS]))
        self._note("wrong", self._receiver.changed, "a webhook was repeated with another body")
        self.result.webhooks = len(self._receiver.messages)
        self.result.webhooks_again = self._receiver.repeated

    def _compare_events(self, who: str, found: Counter[Any], expected: Counter[Any]) -> None:
        lost, more = expected - found, found - expected
        self._note("lost", lost.total(), f"{who} has not received {list(lost)[:3]}")
        self._note("doubled", more.total(), f"{who} received {list(more)[:3]} too often")

    def _note(self, kind: str, count: int, what: str) -> None:
        if count:
            setattr(self.result, kind, getattr(self.result, kind) + count)
            self.result.differences.append(f"{kind}: {what}")
            self._say(f"{kind}: {what}")


def _bag(rows: Iterable[dict[str, Any]]) -> Counter[str]:
    return Counter(row_json(row) for row in rows)


def _expected(events: Iterable[dict[str, Any]], ids: Iterable[int]) -> Counter[tuple[int, int, int]]:
    return Counter(
        (id, event["worker"], event["n"]) for event in events for id in ids if event["ms"] >= EVENTS[id]
    )


def _busy() -> float:
    """How many times longer things take than on a machine that has nothing else to do, about."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def _wait(began: float, failure: str) -> None:
    """A moment, unless more patience than the load explains is used up."""
    if time.monotonic() - began > PATIENCE * _busy():
        raise ServerFailure(failure)
    time.sleep(0.05)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port
