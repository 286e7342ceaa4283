"""Clients of a server that is killed: publishers, one who subscribes and removes, followers, a webhook.

A publisher owns its keys: what it was answered is its model of the tables. A request whose connection was
lost is sent again with the same Idempotency-Key until it is answered, so at rest the model is exact.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from threading import Event, Lock, Thread
from typing import Any

import httpx
import websockets
from websockets.sync.client import connect

from tocsin.model.delta import Delta
from tocsin.remote import Remote, RemoteContents, RemoteError
from tocsin.remote.messages import MessageStream, RemoteMessage

__all__ = ["FORMS", "ChaosFollower", "Churn", "Publisher", "Receiver", "Worker"]

FORMS = ("ndjson", "sse", "websocket", "poll")
SYMBOLS = 8
MOST_ROWS = 3


class Worker:
    """A thread that works step by step while `go` is set; `error` ends the run."""

    def __init__(self, name: str, go: Event) -> None:
        self.error: BaseException | None = None
        self._go, self._is_idle, self._ended = go, Event(), Event()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def rests(self) -> bool:
        """Whether the step that was under way is done; `go` is cleared."""
        return self._is_idle.is_set()

    def end(self) -> None:
        self._ended.set()

    def step(self) -> None:
        """One request."""

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                self._is_idle.set()
                if not self._go.wait(0.05):
                    continue
                self._is_idle.clear()
                if self._go.is_set():
                    self.step()
        except Exception as error:  # noqa: BLE001 - the run reports it
            self.error = error
            self._is_idle.set()


class Publisher(Worker):
    """Changes rows under keys of its own and publishes numbered events."""

    def __init__(self, number: int, url: str, seed: int, go: Event) -> None:
        self.stocks: dict[str, dict[str, Any]] = {}
        self.reviews: dict[int, dict[str, Any]] = {}
        self.events: list[dict[str, Any]] = []
        self.requests = 0
        self._number, self._random = number, Random(f"{seed} {number}")
        self._remote = Remote(url, retry=1e9)
        super().__init__(f"publisher-{number}", go)

    def step(self) -> None:
        """One request of some rows."""
        draw, count = self._random, self._random.randint(1, MOST_ROWS)
        kind = draw.choice(("stocks", "stocks", "reviews", "hits", "hits"))
        if kind == "hits":
            first = len(self.events)
            rows = [{"worker": self._number, "n": first + i, "ms": draw.randrange(5)} for i in range(count)]
            self._remote.publish("hits", rows)
            self.events += rows
        else:
            self._change(kind, draw, count)
        self.requests += 1

    def _change(self, table: str, draw: Random, count: int) -> None:
        name = "symbol" if table == "stocks" else "id"
        held: dict[Any, dict[str, Any]] = self.stocks if table == "stocks" else self.reviews
        if held and draw.random() < 0.25:
            key = draw.choice(list(held))
            self._remote.publish(table, {name: key}, op="delete")
            del held[key]
            return
        rows = [self._row(table, draw) for _ in range(count)]
        self._remote.publish(table, rows, op="upsert")
        held.update({row[name]: row for row in rows})

    def _row(self, table: str, draw: Random) -> dict[str, Any]:
        if table == "stocks":
            symbol = f"{self._number}-{draw.randrange(SYMBOLS)}"
            return {"symbol": symbol, "per": draw.randrange(5), "risk": draw.randrange(5)}
        id = 1000 * self._number + draw.randrange(SYMBOLS)
        return {"id": id, "symbol": f"{draw.randrange(3)}-{draw.randrange(SYMBOLS)}",
                "rating": draw.randrange(5)}  # fmt: skip


class Churn(Worker):
    """Subscriptions that come, change, rest and go; `model` has the query of each, None while it rests."""

    def __init__(self, url: str, seed: int, go: Event, texts: tuple[str, ...]) -> None:
        self.model: dict[int, tuple[str, bool]] = {}  # text, whether it is active
        self.requests = 0
        self._random, self._texts = Random(f"{seed} churn"), texts
        self._remote = Remote(url, retry=1e9)
        super().__init__("churn", go)

    def step(self) -> None:
        """One request about one subscription."""
        id, sql = self._random.randint(1, 30), self._random.choice(self._texts)
        sql = sql.format(n=self._random.randrange(5))
        if id not in self.model:
            self._until_done(lambda: self._remote.subscribe(sql, id=id, subscriber="ann"), 409)
            self.model[id] = sql, True
        else:
            text, active = self.model[id]
            kind = self._random.choice(("replace", "pause", "resume", "remove"))
            if kind == "replace":
                self._remote.replace(id, sql, subscriber="ann")
                self.model[id] = sql, active
            elif kind == "remove":
                self._until_done(lambda: self._remote.unsubscribe([id]), 404)
                del self.model[id]
            else:
                (self._remote.pause if kind == "pause" else self._remote.resume)([id])
                self.model[id] = text, kind == "resume"
        self.requests += 1

    def _until_done(self, call: Callable[[], Any], done: int) -> None:
        """Repeat a request whose connection was lost; this status says that the lost one was applied."""
        tries = 0
        while True:
            try:
                call()
            except RemoteError as error:
                if error.status == 0:
                    tries += 1
                    time.sleep(0.05)
                    continue
                if not (tries and error.status == done):
                    raise
            return


class ChaosFollower:
    """Keeps contents and counts events by one way of following, and resumes by token after each cut.

    Now and then it is cut itself: it goes on from what it had stored.
    """

    def __init__(self, form: str, url: str, params: dict[str, str], seed: int) -> None:
        self.form, self.contents = form, RemoteContents()
        self.events: Counter[tuple[int, int, int]] = Counter()  # subscription, worker, n
        self.deltas, self.resumes, self.resets = 0, 0, Counter[str]()
        self.error: BaseException | None = None
        self._url, self._params, self._random = url, params, Random(f"{seed} {form}")
        self._stream, self._ended = MessageStream(None), Event()
        self._http = httpx.Client(timeout=60)
        self._thread = Thread(target=self._run, name=f"follower-{form}", daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ended.set()

    def _run(self) -> None:
        lines = getattr(self, f"_{self.form}")
        try:
            while not self._ended.is_set():
                self._stream.connect()
                with suppress(
                    httpx.TransportError, OSError, EOFError, TimeoutError,
                    websockets.exceptions.WebSocketException,
                ):  # fmt: skip
                    left = self._random.randint(20, 400)
                    for line in lines():
                        self._receive(line)
                        left -= 1
                        if not left or self._ended.is_set():
                            break
                self.resumes += 1
                self.contents = RemoteContents.load(self.contents.dump())
                self._ended.wait(0.1)
        except Exception as error:  # noqa: BLE001 - the run reports it
            self.error = error

    def _receive(self, line: bytes) -> None:
        message = self._stream.read(line)
        if message is None:
            self.contents.advance(self._stream.token)
            return
        self._count(message)
        self.contents.receive(message)

    def _count(self, message: RemoteMessage) -> None:
        if message.reason not in (None, "start"):
            self.resets[str(message.reason)] += 1
        self.deltas += len(message.deltas)
        for number in message.events:
            delta: Delta = message.deltas[number]
            self.events[delta.subscription, delta.row["worker"], delta.row["n"]] += 1

    def _query(self, **more: str) -> dict[str, str]:
        token = self._stream.token
        return {**self._params, **({} if token is None else {"since": token}), **more}

    def _ndjson(self) -> Iterator[bytes]:
        headers = {"accept": "application/x-ndjson"}
        with self._http.stream("GET", f"{self._url}/v1/deltas", params=self._query(), headers=headers) as it:
            yield from (line.encode() for line in it.iter_lines())

    def _sse(self) -> Iterator[bytes]:
        headers = {"accept": "text/event-stream"}
        if self._stream.token is not None:
            headers["last-event-id"] = self._stream.token
        url = f"{self._url}/v1/deltas"
        with self._http.stream("GET", url, params=self._params, headers=headers) as answer:
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    yield line[6:].encode()

    def _websocket(self) -> Iterator[bytes]:
        address = f"{self._url.replace('http', 'ws', 1)}/v1/deltas?{httpx.QueryParams(self._query())}"
        with connect(address, open_timeout=20, close_timeout=1, max_size=None) as socket:
            while True:
                text = socket.recv()
                yield text if isinstance(text, bytes) else text.encode()

    def _poll(self) -> Iterator[bytes]:
        while True:
            answer = self._http.get(f"{self._url}/v1/deltas", params=self._query(wait="1", limit="50"))
            if answer.status_code != 200:
                return
            found = answer.json()
            kind = "snapshot" if "reset" in found else "deltas"
            if kind == "snapshot" and found["deltas"]:
                raise AssertionError("a poll has a snapshot and deltas")
            yield json.dumps({**found, "type": kind, "reason": found.get("reset")}).encode()


class Receiver:
    """A webhook's address: events by message id, which must repeat the same when it comes again."""

    def __init__(self) -> None:
        self.messages: dict[str, bytes] = {}
        self._events: Counter[tuple[int, int, int]] = Counter()
        self.repeated, self.changed, self._lock = 0, 0, Lock()
        receiver = self

        class HookHandler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(length := int(self.headers["content-length"]))
                if len(body) < length:  # the sender was killed: an answer would not reach it
                    self.close_connection = True
                    return
                receiver._receive(self.headers["webhook-id"], body)
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        class HookServer(ThreadingHTTPServer):
            def handle_error(self, *_: object) -> None:
                """A connection of a killed server."""

        self._server = HookServer(("127.0.0.1", 0), HookHandler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/hooks"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def received(self) -> Counter[tuple[int, int, int]]:
        """Events by subscription, worker and number."""
        with self._lock:
            return self._events.copy()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _receive(self, id: str, body: bytes) -> None:
        with self._lock:
            known = self.messages.setdefault(id, body)
            if known is not body:
                self.repeated += 1
                self.changed += known != body
                return
            for delta in json.loads(body)["data"]["deltas"]:
                self._events[delta["subscription"], delta["row"]["worker"], delta["row"]["n"]] += 1
