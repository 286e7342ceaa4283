"""Chaos for the server: it is killed under load, again and again, and nothing may be lost or doubled.

    publishers ─┐                            ┌─► followers: NDJSON, SSE, WebSocket, long poll
    churn      ─┴─► `tocsin serve`, killed ──┴─► a webhook

Each run is one life of a server over the same folder: it starts, works, and gets SIGKILL at a random moment
or at a step of `tocsin.server.steps`. Before the next kill, clients rest for a moment and all is compared:

    lost changes   a row or event that was acknowledged and is not there
    lost, doubled  a delta that a follower did not receive, or more than once
    wrong          a content that is not the reference's, or not what a follower has kept

Publishers, followers and the webhook live on through all runs and resume by their tokens.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import Event
from typing import Any

from tocsin.engine import Engine
from tocsin.errors import TocsinError
from tocsin.lab.chaos.server_clients import FORMS, ChaosFollower, Churn, Publisher, Receiver
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
PATIENCE = 300.0  # seconds
_WORK = (0.3, 1.2)  # seconds of load before a random kill
_STEP_BY = 4.0  # seconds after which a step that was not reached is not waited for


@dataclass
class ServerChaosResult:
    """What all runs did and found."""

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

    @property
    def ok(self) -> bool:
        return not (self.lost_changes or self.lost or self.doubled or self.wrong)

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "kills": dict(self.kills), "resets": dict(self.resets), "ok": self.ok}

    def lines(self) -> list[str]:
        kills = ", ".join(f"{count} {where}" for where, count in sorted(self.kills.items()))
        return [
            f"{self.runs} kills in {self.seconds:.0f} s: {kills}",
            f"{self.requests:,} requests acknowledged, {self.deltas:,} deltas followed,"
            f" {self.resumes} resumes, {self.compared:,} contents compared,"
            f" {self.webhooks} webhooks ({self.webhooks_again} again),"
            f" a restart took {self.restart_seconds / max(1, self.runs):.1f} s",
            f"acknowledged changes lost {self.lost_changes}, deltas lost {self.lost},"
            f" doubled {self.doubled}, wrong {self.wrong}",
            *self.differences[:10],
        ]


class ServerChaos:
    """The server, its clients, and what they must agree on."""

    def __init__(self, seed: int, folder: Path | None = None, say: Callable[[str], object] = print) -> None:
        self.result = ServerChaosResult()
        self._seed, self._say, self._random = seed, say, Random(f"{seed} kills")
        self._is_own = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="tocsin-server-chaos-"))
        self.folder.mkdir(parents=True, exist_ok=True)
        self._port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"http://127.0.0.1:{self._port}"
        self._go = Event()
        self._last: list[dict[str, Any]] = []
        self._publishers: list[Publisher] = []
        self._followers: list[ChaosFollower] = []
        self._reference = Engine()
        self._reference.execute(SCHEMA)

    def run(self, runs: int) -> ServerChaosResult:
        """Kill it so many times; the folder is kept if something is wrong."""
        began = time.monotonic()
        try:
            self._start("-", 0)
            self._remote = Remote(self.url, retry=PATIENCE)
            self._set_up()
            for number in range(runs):
                self._live(number)
                self._check(is_last=number == runs - 1)
                if not self.result.ok:
                    break
        except KeyboardInterrupt:
            self._say("interrupted: what was done so far follows")
        finally:
            self._end()
        self.result.seconds = time.monotonic() - began
        if self.result.ok and self._is_own:
            shutil.rmtree(self.folder, ignore_errors=True)
        elif not self.result.ok:
            self._say(f"NOT right, kept in {self.folder}")
        return self.result

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
        wanted: tuple[dict[str, str], ...] = ({}, {"subscriber": "ann"}, {}, {"subscription": "101,102,103"})
        for form, params in zip(FORMS, wanted, strict=True):
            self._followers.append(ChaosFollower(form, self.url, params, self._seed))
        while not all(follower.contents.token for follower in self._followers):
            self._raise_errors()
            time.sleep(0.02)
        self._publishers = [Publisher(number, self.url, self._seed, self._go) for number in range(3)]
        self._churn = Churn(self.url, self._seed, self._go, TEXTS)

    def _live(self, number: int) -> None:
        """Work until a kill; then the server is started again."""
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
            end = time.monotonic() + _STEP_BY
            while self._is_alive() and time.monotonic() < end:
                time.sleep(0.02)
        self._go_on(step if not self._is_alive() else "at random")

    def _go_on(self, where: str) -> None:
        self._kill()
        self.result.kills[where] += 1
        self.result.runs += 1
        self._raise_errors()
        start = time.monotonic()
        self._start("-", 0)
        self.result.restart_seconds += time.monotonic() - start

    def _start(self, step: str, times: int) -> None:
        command = [sys.executable, "-m", "tocsin.lab.chaos.server_process"]
        with open(self.folder / "server.log", "ab") as log:
            self._process = subprocess.Popen(
                [*command, str(self.folder / "data"), str(self._port), step, str(times)],
                stdout=log, stderr=subprocess.STDOUT, process_group=0,
            )  # fmt: skip
        end = time.monotonic() + PATIENCE
        with Remote(self.url, retry=0) as probe:
            while True:
                with suppress(RemoteError):
                    probe.stats()
                    return
                if not self._is_alive():
                    if step != "-":  # it was reached while starting
                        return
                    raise TocsinError("the server ended", hint=f"its log is in {self.folder}")
                if time.monotonic() > end:
                    raise TocsinError("the server does not answer", hint=f"its log is in {self.folder}")
                time.sleep(0.05)

    def _is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _end(self) -> None:
        self._go.clear()
        for worker in (*self._publishers, *self._followers, getattr(self, "_churn", None)):
            if worker is not None:
                worker.end()
        self._kill()
        if hasattr(self, "_receiver"):
            self._receiver.close()

    def _raise_errors(self) -> None:
        for worker in (*self._publishers, *self._followers, getattr(self, "_churn", None)):
            if worker is not None and worker.error is not None:
                raise worker.error

    # -- what must hold ------------------------------------------------------------------------------

    def _check(self, is_last: bool) -> None:
        self._go.clear()
        for worker in (*self._publishers, self._churn):
            worker.rest()
        self._raise_errors()
        result = self.result
        result.requests = sum(p.requests for p in self._publishers) + self._churn.requests
        last = {"worker": -1, "n": result.runs, "ms": max(EVENTS.values())}  # concerns every follower
        token = self._remote.publish("hits", last).token
        self._last.append(last)
        tables = {
            "stocks": [row for p in self._publishers for row in p.stocks.values()],
            "reviews": [row for p in self._publishers for row in p.reviews.values()],
        }
        served = self._compare_contents(tables)
        self._compare_followers(token, served)
        if is_last:
            self._compare_webhook()
        result.deltas = sum(f.deltas for f in self._followers)
        result.resumes = sum(f.resumes for f in self._followers)
        result.resets = sum((f.resets for f in self._followers), Counter())

    def _compare_contents(self, tables: dict[str, list[dict[str, Any]]]) -> dict[int, Counter[str]]:
        served = {}
        active = {id: text for id, (text, is_active) in self._churn.model.items() if is_active}
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
        for id in self._churn.model.keys() - active.keys():
            served[id] = _bag(self._remote.content(id))
            self._note("wrong", served[id].total(), f"{id} rests and has {served[id]}")
        listed = {one["id"] for one in self._remote.subscriptions(limit=1000)["subscriptions"]}
        wanted = {*EVERYTHING, *EVENTS, *self._churn.model}
        self._note("lost_changes", len(listed ^ wanted), f"subscriptions {listed ^ wanted}")
        return served

    def _compare_followers(self, token: str, served: dict[int, Counter[str]]) -> None:
        events = [*self._last, *(event for p in self._publishers for event in p.events)]
        self.result.changes = len(events)
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
        end = time.monotonic() + PATIENCE
        while True:
            contents = follower.contents
            with suppress(TimeoutError):
                contents.wait(token, timeout=0.2)
                return contents
            if follower.error is not None:
                raise follower.error
            if time.monotonic() > end:
                raise TocsinError(f"{follower.form} is at {contents.token}, not at {token}")

    def _compare_webhook(self) -> None:
        end = time.monotonic() + PATIENCE
        while self._remote.call("GET", "/deliveries/hook")["waiting"] and time.monotonic() < end:
            time.sleep(0.1)
        events = [*self._last, *(event for p in self._publishers for event in p.events)]
        self._compare_events("webhook", self._receiver.events(), _expected(events, [*EVENTS]))
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


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port
