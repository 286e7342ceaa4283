"""A broker on loopback: messages and deliveries per second, and how long a message takes.

    this process: the server's node ─► `tocsin broker`, a process ─► clients, a process: one connection each

Subscriptions are points of two ranges, wide in one attribute and narrow in the other, spread over the
clients. A message has one box. What every client received is compared with brute force over all points before
a figure is printed: the number of messages, and the sum of their seqs. First messages are sent as fast as the
broker takes them, then at a given rate, for the time from sending to receiving.
"""

from __future__ import annotations

import asyncio
import multiprocessing as mp
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from tocsin.errors import TocsinError
from tocsin.model.message import GREATEST, LEAST, MessageKind, Messages, Regions
from tocsin.network.batches import EMPTY, MessageBatch
from tocsin.network.root import Reply, Root
from tocsin.network.routing import NO_BOXES, points_as_boxes
from tocsin.network.stations import Peer, Station
from tocsin.network.wire import VERSION, Answer, ClientRequest, FormBoxes, Frame, Hello, Update, Welcome

__all__ = ["BrokerResult", "BrokerSetting", "measure_broker", "show_broker"]

FORM = 1
DOMAIN = 100_000
WAITING = 4 << 20  # bytes to the broker that wait before the server pauses


@dataclass(frozen=True)
class BrokerSetting:
    """What is sent to whom."""

    subscriptions: int = 10_000
    clients: int = 50
    messages: int = 60_000
    batch: int = 64
    repeat: int = 3
    seed: int = 0
    rate: int = 20_000  # messages per second while latency is measured, if the broker takes as many


@dataclass(frozen=True)
class BrokerResult:
    """What was measured, the best of several rounds; all rounds were right."""

    setting: BrokerSetting
    messages_per_second: float
    deliveries_per_second: float
    deliveries_per_message: float
    worst_messages_per_second: float
    latency_p50_ms: float
    latency_p99_ms: float
    rate_of_latency: float  # messages per second while it was measured
    checked: bool = True

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


# -- workload ------------------------------------------------------------------------------------------


def drawn_points(setting: BrokerSetting) -> NDArray[np.int64]:
    """By subscription (l, r) of both planes."""
    rng = np.random.default_rng(setting.seed)
    middle = rng.uniform(0, DOMAIN, (setting.subscriptions, 2))
    width = rng.normal([40_000, 3_000], [10_000, 1_000], (setting.subscriptions, 2)).clip(1)
    return np.stack([middle - width / 2, middle + width / 2], axis=2).astype(np.int64)


def drawn_boxes(setting: BrokerSetting, count: int, seed: int) -> NDArray[np.int64]:
    """Boxes of messages: as those of rows that are exposed, between two neighbours in one attribute."""
    rng = np.random.default_rng((setting.seed, seed))
    value = rng.uniform(0, DOMAIN, (count, 2)).astype(np.int64)
    gap = rng.exponential(400, (count, 2)).astype(np.int64)
    boxes = np.empty((count, 2, 4), np.int64)
    boxes[:, 0] = np.stack([np.full(count, LEAST), value[:, 0], value[:, 0], np.full(count, GREATEST)], 1)
    one, two = value[:, 1] - gap[:, 0] - 1, value[:, 1] + gap[:, 1] + 1500
    boxes[:, 1] = np.stack([one, value[:, 1], value[:, 1], two], 1)
    return boxes


def expected(setting: BrokerSetting, points: NDArray[np.int64], boxes: NDArray[np.int64], first: int) -> Any:
    """By client: how many messages, and the sum of their seqs; brute force."""
    owner = np.arange(len(points)) % setting.clients
    out = np.zeros((setting.clients, 2), np.int64)
    ends = np.ascontiguousarray(points.reshape(-1, 4).T)
    for number, box in enumerate(boxes.reshape(-1, 4, 2)):
        inside = np.ones(len(points), np.bool_)
        for (low, high), end in zip(box.tolist(), ends, strict=True):
            inside &= (low <= end) & (end <= high)
        own = np.unique(owner[inside])
        out[own] += 1, first + number
    return out


class _Points:
    """A service that answers each client with its points."""

    def __init__(self, setting: BrokerSetting) -> None:
        self._points, self._clients = drawn_points(setting), setting.clients

    def frozen(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def described(self) -> tuple[int, MessageBatch]:
        return -1, EMPTY

    def reply(self, body: bytes, seq: int) -> Reply:
        mine = points_as_boxes(self._points[int(body) :: self._clients])
        return Reply((np.full(len(mine), FORM, np.int64), mine), b"")

    def wanted(self, key: str, subscriptions: Sequence[int]) -> tuple[list[int], FormBoxes]:
        return [], NO_BOXES

    def snapshots(self, subscriptions: Sequence[int], seq: int) -> list[bytes]:
        return []

    def expire(self) -> int:
        return 0


# -- clients -------------------------------------------------------------------------------------------


class _Client:
    """One connection that counts what it receives."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.is_ready = False
        self.got = np.zeros(2, np.int64)
        self.took: list[NDArray[np.float64]] = []

    def opened(self, peer: Peer) -> None:
        peer.send(Hello(VERSION, "", str(self.number), True))

    def received(self, peer: Peer, frames: Sequence[Frame]) -> None:
        now = time.monotonic_ns()
        for frame in frames:
            if isinstance(frame, Update) and frame.batch.messages:
                # 50 clients share a core here: they read the seqs, the first column, and the bodies alone
                count, data = frame.batch.messages, frame.batch.data
                self.got += count, int(np.frombuffer(data, np.int64, count).sum())
                self.took.append((now - np.frombuffer(data[-8 * count :], np.int64)) / 1e6)
            elif isinstance(frame, Welcome):
                peer.link = 1
                peer.send(ClientRequest(1, str(self.number).encode()))
            elif isinstance(frame, Answer):
                self.is_ready = True

    def closed(self, peer: Peer) -> None:
        pass


def _clients(port: int, count: int, orders: Connection) -> None:
    """A process with all clients; says what they got on request."""

    async def run() -> None:
        clients = [_Client(number) for number in range(count)]
        loop = asyncio.get_running_loop()
        for client in clients:
            await loop.create_connection(partial(Peer, client), "127.0.0.1", port)
        while not all(client.is_ready for client in clients):
            await asyncio.sleep(0.01)
        orders.send("ready")
        while True:
            while not orders.poll():
                await asyncio.sleep(0.002)
            wanted = orders.recv()
            if wanted is None:
                return
            until = time.monotonic() + 60
            while sum(int(client.got[0]) for client in clients) < wanted and time.monotonic() < until:
                await asyncio.sleep(0.001)
            done = time.monotonic()
            await asyncio.sleep(0.1)  # would more come?
            took = [part for client in clients for part in client.took]
            orders.send(
                (done, [client.got.tolist() for client in clients], np.concatenate(took or [np.empty(0)]))
            )
            for client in clients:
                client.got[:], client.took = 0, []

    asyncio.run(run())


# -- measuring -----------------------------------------------------------------------------------------


def measure_broker(setting: BrokerSetting) -> BrokerResult:
    """Start everything, measure, and stop everything."""
    return asyncio.run(_measure(setting))


async def _measure(setting: BrokerSetting) -> BrokerResult:
    root = Root("bench", _Points(setting))
    station = Station(root, name="bench", tokens=None)
    await station.listen("127.0.0.1:0")
    command = [sys.executable, "-m", "tocsin", "broker", "--up", f"127.0.0.1:{station.port}"]
    broker = subprocess.Popen([*command, "--listen", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True)
    assert broker.stderr is not None
    line = await asyncio.to_thread(broker.stderr.readline)
    ours, theirs = mp.Pipe()
    process = mp.get_context("spawn").Process(
        target=_clients, args=(int(line.split()[-1]), setting.clients, theirs), daemon=True
    )
    process.start()
    try:
        return await _rounds(setting, station, ours)
    finally:
        ours.send(None)
        broker.terminate()
        process.join(10)
        await station.close()
        broker.wait(10)
        broker.stderr.close()


async def _rounds(setting: BrokerSetting, station: Station, clients: Connection) -> BrokerResult:
    await asyncio.to_thread(clients.recv)
    points, seq = drawn_points(setting), 0
    rates: list[tuple[float, float]] = []
    latency = np.empty(0)
    for number in range(
        setting.repeat + 2
    ):  # the first one warms the broker's index, the last is for latency
        is_last = number == setting.repeat + 1
        rate = min(setting.rate, max(rates)[0] / 2) if is_last else None
        count = setting.messages if rate is None else max(setting.batch, int(2 * rate))
        boxes = drawn_boxes(setting, count, number)
        wanted = expected(setting, points, boxes, seq + 1)
        clients.send(int(wanted[:, 0].sum()))
        begun = time.monotonic()
        await _publish(station, setting, boxes, seq, rate)
        seq += count
        done, got, took = await asyncio.to_thread(clients.recv)
        if not np.array_equal(np.array(got), wanted):
            raise TocsinError("clients did not receive what they should", hint="this is a bug: no figures")
        if is_last:
            latency = took
        elif number:
            rates.append((count / (done - begun), wanted[:, 0].sum() / (done - begun)))
    best = max(rates)
    p50, p99 = (float(part) for part in np.percentile(latency, [50, 99]))
    share = best[1] / best[0]
    return BrokerResult(setting, *best, share, min(rates)[0], p50, p99, min(setting.rate, best[0] / 2))


async def _publish(
    station: Station, setting: BrokerSetting, boxes: NDArray[np.int64], seq: int, rate: float | None
) -> None:
    """Send messages in batches, at a rate or as fast as the broker takes them."""
    root, begun = station.node, time.monotonic()
    assert isinstance(root, Root)
    (peer,) = station.peers.values()
    for start in range(0, len(boxes), setting.batch):
        mine = boxes[start : start + setting.batch]
        station.send(root.publish(seq + start + len(mine), _batch(mine, seq + start + 1)))
        while peer.waiting > WAITING:
            await asyncio.sleep(0.0005)
        late = 0.0 if rate is None else begun + (start + len(mine)) / rate - time.monotonic()
        await asyncio.sleep(max(0.0, late))


def _batch(boxes: NDArray[np.int64], first: int) -> MessageBatch:
    count = len(boxes)
    numbers, zero = np.arange(first, first + count), np.zeros(count, np.int64)
    kind = np.full(count, MessageKind.EXPOSE, np.int8)
    regions = Regions(np.arange(count + 1), boxes)
    messages = Messages(numbers, zero, kind, zero.astype(np.int8), zero, numbers, zero - 1, regions)
    now = time.monotonic_ns().to_bytes(8, "little")
    return MessageBatch.of(messages, FORM, [now] * count)


def show_broker(result: BrokerResult, console: Console) -> None:
    """Print a table."""
    setting = result.setting
    table = Table(
        title=f"one broker, {setting.subscriptions:,} subscriptions, {setting.clients} clients, loopback; "
        f"frames of {setting.batch}, best of {setting.repeat}, seed {setting.seed}"
    )
    for name in (
        "messages/s",
        "worst round",
        "deliveries/s",
        "deliveries/message",
        "p50 ms",
        "p99 ms",
        "at /s",
    ):
        table.add_column(name, justify="right")
    table.add_row(
        f"{result.messages_per_second:,.0f}",
        f"{result.worst_messages_per_second:,.0f}",
        f"{result.deliveries_per_second:,.0f}",
        f"{result.deliveries_per_message:.1f}",
        f"{result.latency_p50_ms:.1f}",
        f"{result.latency_p99_ms:.1f}",
        f"{result.rate_of_latency:,.0f}",
    )
    console.print(table)
