"""`tocsin serve` on this machine: from a request to its deltas at a follower, events in batches, listeners.

    this process: connections that publish, SSE followers  ─HTTP─►  `tocsin serve`, a process, synced

    single      so many changes per second, one per request; the time until the follower has the delta
    batch       requests of many events, as fast as they are acknowledged
    listeners   many open SSE followers, each of a subscriber; resident memory of the server meanwhile
    restart     seconds until it answers again, after it was killed and after it was stopped

Subscriptions are `user = ? AND ms > ?` over one stream. Which event matches which is known; before a figure
is returned, every delta that the follower received is compared with it.
"""

from __future__ import annotations

import asyncio
import os
import re
import resource
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from tocsin.errors import TocsinError
from tocsin.remote import Remote, RemoteError

__all__ = ["PARTS", "ServerBenchResult", "ServerBenchSetting", "measure_server", "show_server"]

PARTS = ("single", "batch", "listeners", "restart")
HOST = "127.0.0.1"
TEMPLATE = "SELECT n FROM hits WHERE user = :user AND ms > :ms"
_NUMBER = re.compile(rb'"n":(\d+)')
_ARROW = "application/vnd.apache.arrow.stream"


@dataclass(frozen=True)
class ServerBenchSetting:
    """What is sent, and how fast."""

    subscriptions: int = 100_000
    rate: int = 2000  # changes per second, one per request
    seconds: float = 20.0
    connections: int = 8
    batch: int = 1000
    listeners: int = 5000
    listen_seconds: float = 60.0
    seed: int = 0


@dataclass
class ServerBenchResult:
    """What was measured; a part that was not run is empty."""

    setting: ServerBenchSetting
    load_seconds: float = 0.0
    single: dict[str, Any] = field(default_factory=dict)
    batch: dict[str, Any] = field(default_factory=dict)
    listeners: dict[str, Any] = field(default_factory=dict)
    restart: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Http:
    """One kept connection: a request at a time, as few bytes and as little work as HTTP allows."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> Http:
        self.reader, self.writer = await asyncio.open_connection(HOST, self._port, limit=1 << 24)
        return self

    async def __aexit__(self, *error: object) -> None:
        self.writer.close()

    async def post(self, path: str, body: bytes, kind: str = "application/json") -> bytes:
        """The body of the answer, which must be 200."""
        head = (
            f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        self.writer.write(head.encode() + body)
        answer = await self.reader.readuntil(b"\r\n\r\n")
        length = int(re.search(rb"content-length: (\d+)", answer, re.IGNORECASE)[1])  # type: ignore[index]
        found = await self.reader.readexactly(length)
        if not answer.startswith(b"HTTP/1.1 200"):
            raise TocsinError(f"the server answered {answer[9:12].decode()}: {found[:200]!r}")
        return found

    async def events(self, path: str) -> AsyncIterator[bytes]:
        """The data of server-sent events."""
        head = f"GET {path} HTTP/1.1\r\nhost: x\r\naccept: text/event-stream\r\n\r\n"
        self.writer.write(head.encode())
        async for line in self.reader:
            if line.startswith(b"data: "):
                yield line[6:]


class ServerProcess:
    """`tocsin serve` over a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.port = folder, _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def start(self) -> float:
        """Seconds until it answers."""
        begin = time.perf_counter()
        command = [sys.executable, "-m", "tocsin", "serve", "--dir", str(self._folder), "--port"]
        self._process = subprocess.Popen([*command, str(self.port)], stderr=subprocess.DEVNULL)
        with Remote(self.url, retry=0) as probe:
            while True:
                with suppress(RemoteError):
                    probe.stats()
                    return time.perf_counter() - begin
                if self._process.poll() is not None:
                    raise TocsinError("the server ended", hint=f"tocsin serve --dir {self._folder}")
                time.sleep(0.02)

    def resident(self) -> int:
        """Bytes of resident memory."""
        assert self._process is not None
        text = Path(f"/proc/{self._process.pid}/status").read_text()
        return 1024 * int(re.search(r"VmRSS:\s+(\d+)", text)[1])  # type: ignore[index]

    def seconds(self) -> float:
        """CPU time so far."""
        assert self._process is not None
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self, kill: bool = False) -> None:
        if self._process is not None:
            (self._process.kill if kill else self._process.terminate)()
            self._process.wait()


class ServerWorkload:
    """Subscriptions and events: subscription i+1 wants user i, so an event matches one or none."""

    def __init__(self, setting: ServerBenchSetting) -> None:
        self.setting, self._random = setting, np.random.default_rng(setting.seed)
        self._next = 0

    def parameters(self) -> Any:
        count = self.setting.subscriptions
        whose = [f"s{i}" for i in range(count)]
        return pa.table(
            {
                "id": pa.array(np.arange(1, count + 1)),
                "subscriber": whose,
                "user": pa.array(np.arange(count)),
                "ms": pa.array(self._random.integers(0, 500, count)),
            }
        )

    def columns(self, count: int, share: float = 1.0, below: int | None = None) -> dict[str, Any]:
        """Events of which this share has a subscription; numbered on from those before."""
        users = below or self.setting.subscriptions
        user = self._random.integers(0, users, count)
        user[self._random.random(count) >= share] += self.setting.subscriptions
        first, self._next = self._next, self._next + count
        return {
            "n": np.arange(first, first + count),
            "user": user,
            "ms": self._random.integers(500, 1000, count),
        }


def measure_server(
    parts: list[str], setting: ServerBenchSetting, say: Callable[[str], object]
) -> ServerBenchResult:
    """Run the parts against one server after the other parts' load."""
    unknown = set(parts) - set(PARTS)
    if unknown:
        raise TocsinError(f"there is no part {min(unknown)!r}", hint=f"one of {', '.join(PARTS)}")
    _allow_files(setting.listeners + 1000)
    result, workload = ServerBenchResult(setting), ServerWorkload(setting)
    with TemporaryDirectory(prefix="tocsin-bench-server-") as folder:
        server = ServerProcess(Path(folder) / "data")
        try:
            server.start()
            say(f"{setting.subscriptions:,} subscriptions")
            begin = time.perf_counter()
            with Remote(server.url, timeout=600) as remote:
                remote.define("CREATE STREAM hits (n BIGINT, user BIGINT, ms BIGINT)")
                remote.subscribe_many(workload.parameters(), template=TEMPLATE)
            result.load_seconds = time.perf_counter() - begin
            for part in parts or PARTS:
                say(part)
                setattr(result, part, asyncio.run(_MEASURES[part](server, workload)))
        finally:
            server.stop(kill=True)
    return result


# -- single ------------------------------------------------------------------------------------------


async def _single(server: ServerProcess, workload: ServerWorkload) -> dict[str, Any]:
    """A change per request, so many per second over some connections."""
    setting = workload.setting
    warm, count = setting.rate * 2, int(setting.rate * setting.seconds)
    columns = workload.columns(warm + count)
    rows = [
        dict(zip(columns, row, strict=True))
        for row in zip(*(c.tolist() for c in columns.values()), strict=True)
    ]
    bodies = [msgspec.json.encode(row) for row in rows]
    sent, answered = np.zeros(len(rows)), np.zeros(len(rows))
    first = int(columns["n"][0])
    used = 0.0
    async with _following(server.port, first, len(rows)) as received:
        start = time.perf_counter() + 0.1

        async def publish(connection: int) -> None:
            nonlocal used
            async with Http(server.port) as http:
                for number in range(connection, len(rows), setting.connections):
                    used = used or (server.seconds() if number >= warm else 0.0)
                    due = start + number / setting.rate
                    if (wait := due - time.perf_counter()) > 0:
                        await asyncio.sleep(wait)
                    sent[number] = time.perf_counter()
                    await http.post("/v1/changes/hits", bodies[number])
                    answered[number] = time.perf_counter()

        await asyncio.gather(*(publish(number) for number in range(setting.connections)))
        end = time.perf_counter()
        await _all_received(received)
    used = server.seconds() - used
    part = slice(warm, None)
    to_answer, to_follower = answered[part] - sent[part], received[part] - sent[part]
    return {
        "changes_per_second": round(count / (end - sent[warm]), 1),
        "connections": setting.connections,
        "server_cpu_us_per_change": round(1e6 * used / count),
        **_quantiles("sse", to_follower),
        **_quantiles("answer", to_answer),
        "checked": True,
    }


@asynccontextmanager
async def _following(port: int, first: int, count: int) -> AsyncIterator[Any]:
    """When each event from `first` on arrived at a follower of all; 0: not yet."""
    received = np.zeros(count)
    async with Http(port) as http:
        ready = asyncio.Event()

        async def follow() -> None:
            async for data in http.events("/v1/deltas?queue=1000000"):
                now = time.perf_counter()
                ready.set()
                if b'"type":"slow"' in data:
                    raise TocsinError("the follower was too slow")
                for text in _NUMBER.findall(data):
                    number = int(text) - first
                    if received[number]:
                        raise TocsinError(f"event {number} was delivered twice")
                    received[number] = now

        task = asyncio.create_task(follow())
        await asyncio.wait([task, asyncio.create_task(ready.wait())], return_when=asyncio.FIRST_COMPLETED)
        try:
            yield received
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def _all_received(received: Any, expected: Any = True) -> None:
    """Wait for the rest; then exactly the expected events must have arrived."""
    end = time.perf_counter() + 30
    while not np.array_equal(received > 0, np.broadcast_to(expected, received.shape)):
        if time.perf_counter() > end:
            raise TocsinError(f"{np.sum((received > 0) != expected)} deltas are missing or too many")
        await asyncio.sleep(0.01)


# -- batch -------------------------------------------------------------------------------------------


async def _batch(server: ServerProcess, workload: ServerWorkload) -> dict[str, Any]:
    """Many events per request, over two connections, each form for itself; one event in ten matches."""
    found: dict[str, Any] = {}
    for form in ("arrow", "ndjson"):
        found[form] = await _batches(server, workload, form)
    return {**found, "events_per_request": workload.setting.batch, "matching": 0.1, "checked": True}


async def _batches(server: ServerProcess, workload: ServerWorkload, form: str) -> dict[str, Any]:
    setting = workload.setting
    count = max(20, int(setting.seconds * 100))
    columns = [workload.columns(setting.batch, 0.1) for _ in range(count)]
    kind = _ARROW if form == "arrow" else "application/x-ndjson"
    bodies = [_arrow(c) if form == "arrow" else _ndjson(c) for c in columns]
    first = int(columns[0]["n"][0])
    expected = np.concatenate([c["user"] < setting.subscriptions for c in columns])
    taken, used = np.zeros(count), server.seconds()
    async with _following(server.port, first, len(expected)) as received:
        start = time.perf_counter()

        async def publish(connection: int) -> None:
            async with Http(server.port) as http:
                for number in range(connection, count, 2):
                    begin = time.perf_counter()
                    await http.post("/v1/changes/hits", bodies[number], kind)
                    taken[number] = time.perf_counter() - begin

        await asyncio.gather(publish(0), publish(1))
        end = time.perf_counter()
        await _all_received(received, expected)
        last = time.perf_counter()
    events = count * setting.batch
    return {
        "events_per_second": round(events / (end - start)),
        "events_per_second_until_delivered": round(events / (last - start)),
        "server_cpu_us_per_event": round(1e6 * (server.seconds() - used) / events, 2),
        **_quantiles("answer", taken),
    }


def _arrow(columns: dict[str, Any]) -> bytes:
    table, sink = pa.table(columns), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _ndjson(columns: dict[str, Any]) -> bytes:
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    return b"".join(msgspec.json.encode(dict(zip(columns, row, strict=True))) + b"\n" for row in rows)


# -- listeners ---------------------------------------------------------------------------------------


async def _listeners(server: ServerProcess, workload: ServerWorkload) -> dict[str, Any]:
    """Many followers of one subscriber each, while 100 events per second arrive; memory of the server."""
    setting = workload.setting
    count = min(setting.listeners, setting.subscriptions)
    before = server.resident()
    got = np.zeros(count, np.int64)
    open_now = 0

    async def listen(number: int) -> None:
        nonlocal open_now
        async with Http(server.port) as http:
            async for data in http.events(f"/v1/deltas?subscriber=s{number}"):
                open_now += b'"snapshot"' in data[:40]
                got[number] += len(_NUMBER.findall(data))

    tasks = []
    begin = time.perf_counter()
    for number in range(count):
        tasks.append(asyncio.create_task(listen(number)))
        if number % 50 == 49:
            await asyncio.sleep(0.02)
    while open_now < count:
        if time.perf_counter() - begin > 120:
            raise TocsinError(f"only {open_now} of {count} listeners are open")
        await asyncio.sleep(0.05)
    opened = time.perf_counter() - begin
    expected, memory = np.zeros(count, np.int64), [server.resident()]
    taken: list[float] = []
    async with Http(server.port) as http:
        start = looked = time.perf_counter()
        while time.perf_counter() - start < setting.listen_seconds:
            columns = workload.columns(10, below=count)
            begin = time.perf_counter()
            await http.post("/v1/changes/hits", _ndjson(columns), "application/x-ndjson")
            taken.append(time.perf_counter() - begin)
            np.add.at(expected, columns["user"], 1)
            await asyncio.sleep(max(0.0, 0.1 - (time.perf_counter() - begin)))
            if time.perf_counter() - looked > setting.listen_seconds / 20:
                looked = time.perf_counter()
                memory.append(server.resident())
    end = time.perf_counter() + 30
    while not np.array_equal(got, expected):
        if time.perf_counter() > end:
            raise TocsinError(f"{np.abs(got - expected).sum()} deltas are missing or too many")
        await asyncio.sleep(0.05)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return {
        "listeners": count,
        "opened_in_seconds": round(opened, 1),
        "seconds": setting.listen_seconds,
        "deltas": int(expected.sum()),
        "resident_mb_before": before >> 20,
        "resident_mb": [size >> 20 for size in memory],
        **_quantiles("answer", np.array(taken)),
        "checked": True,
    }


# -- restart -----------------------------------------------------------------------------------------


async def _restart(server: ServerProcess, workload: ServerWorkload) -> dict[str, Any]:
    """Killed as it is, then stopped in order; each time its subscriptions must answer as before."""
    found: dict[str, Any] = {"subscriptions": workload.setting.subscriptions}
    for kind in ("killed", "stopped"):
        begin = time.perf_counter()
        server.stop(kill=kind == "killed")
        if kind == "stopped":
            found["seconds_to_stop"] = round(time.perf_counter() - begin, 2)
        found[f"seconds_{kind}"] = round(server.start(), 2)
        found[f"cpu_seconds_{kind}"] = round(server.seconds(), 2)
        with Remote(server.url, timeout=600) as remote:
            total = remote.subscriptions(limit=1)["total"]
        if total != workload.setting.subscriptions:
            raise TocsinError(f"{total:,} subscriptions are there after it was {kind}")
        columns = workload.columns(1000, 0.5)
        async with _following(server.port, int(columns["n"][0]), 1000) as received, Http(server.port) as http:
            await http.post("/v1/changes/hits", _ndjson(columns), "application/x-ndjson")
            await _all_received(received, columns["user"] < workload.setting.subscriptions)
    return {**found, "resident_mb": server.resident() >> 20, "checked": True}


_MEASURES = {"single": _single, "batch": _batch, "listeners": _listeners, "restart": _restart}


# -- output ------------------------------------------------------------------------------------------


def show_server(result: ServerBenchResult, console: Console) -> None:
    """A table for people."""
    table = Table("part", "figure", "value", box=None)
    for part in PARTS:
        for name, value in _flat(getattr(result, part)):
            table.add_row(part, name, str(value))
    console.print(table)


def _flat(found: dict[str, Any], before: str = "") -> list[tuple[str, Any]]:
    out: list[tuple[str, Any]] = []
    for name, value in found.items():
        out += _flat(value, f"{before}{name} ") if isinstance(value, dict) else [(before + name, value)]
    return out


def _quantiles(name: str, seconds: Any) -> dict[str, float]:
    p50, p99, most = np.quantile(seconds, [0.5, 0.99, 1.0]) * 1000
    return {
        f"{name}_p50_ms": round(p50, 2),
        f"{name}_p99_ms": round(p99, 2),
        f"{name}_max_ms": round(most, 1),
    }


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as free:
        port: int = free.getsockname()[1]
        return port


def _allow_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        if hard != resource.RLIM_INFINITY and hard < count:
            raise TocsinError(f"{count} open files are needed; the limit is {hard}", hint="ulimit -n")
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
