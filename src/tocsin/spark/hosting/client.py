"""The client of the shard hosts: what a Spark worker calls to run a step of a shard.

    worker (transformWithState) ── unix socket ──► host k        k by the shard's name
           state in RocksDB        messages, blobs      one engine per shard

Spark gives the batches of a shard to whichever Python worker is free. An engine kept in a worker would be
stale a third of the time, and in the end every worker would have a copy of every shard. All workers of an
executor share its hosts: each shard is in memory **once**, and a worker stays small (no engine, no
compiler).

- *How many*: none by default: the engines live in Spark's Python workers, within their memory limit.
  `TOCSIN_HOSTS` in the executor's environment changes it, and `PipelinePaths.hosts` from the driver
  overrides that: a number, or AUTO for one per core (`available_cores`).
- *Without*: where a host cannot be had (no folder for its socket, no memory), the worker keeps the engines
  itself (`NoHost`), and says so once in its log.
- *Memory*: per machine, about 150 MB per host for the code, and each shard's tables, subscriptions and
  indexes once, whatever the number of workers, tasks and hosts; while a shard is rebuilt, also its blobs.
  The hosts of a JVM that runs several pipelines have the shards of all. A host evicts shards that were not
  used for ten minutes. With `spark.executor.pyspark.memory` a host has the limit of a worker.
- *Life*: where driver and executor are one JVM, the driver starts the hosts (`early.py`); otherwise the
  first worker that needs one starts it (`process.py`). They belong to one executor's JVM, in
  `<tmp>/tocsin-hosts-<uid>-<digest>/` (mode 0700; their logs are there). A host ends with that JVM
  (where /proc exists), or after ten minutes without a request.
- *Crash*: nothing is lost, because everything is in the state. The worker starts another host, once, and
  sends the blobs; if that fails too it raises, and Spark retries the task.
"""

from __future__ import annotations

import math
import os
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from tocsin.errors import TocsinError
from tocsin.spark.hosting.process import (
    ProcessId,
    host_prefix,
    host_root,
    java_above,
    log_tail,
    start_hosts,
)
from tocsin.spark.hosting.protocol import Header, PeerClosed, receive, send
from tocsin.spark.hosting.server import paths_to_json
from tocsin.spark.sharding import shard_of_text
from tocsin.spark.stages.steps import Blobs, PipelinePaths, ShardMessage, ShardResult, ShardStep, StateMeta
from tocsin.spark.storage.cache import make_private

__all__ = [
    "AUTO", "EXECUTOR_CORES", "SETTING", "Hosts", "NoHost", "StepFailed", "available_cores", "host_count",
    "host_stats", "hosts_for", "wanted_hosts",
]  # fmt: skip

SETTING = "TOCSIN_HOSTS"
EXECUTOR_CORES = "SPARK_EXECUTOR_CORES"
AUTO = -1  # one host per core
IDLE = 600.0  # seconds
DYING = 2.0  # seconds that a host may take to end after it was killed
_CREDENTIALS = struct.Struct("3i")  # process, user, group


class StepFailed(TocsinError):
    """The engine raised; the hint is its traceback."""


class NoHost(TocsinError):
    """A host cannot be had on this machine; the work goes on without it."""


def available_cores() -> int:
    """The cores that this executor may use: what Spark gave it, and no more than its control group allows."""
    cores = [len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1]
    with suppress(ValueError):
        cores.append(int(os.environ.get(EXECUTOR_CORES, "")))
    with suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        cores.append(math.ceil(int(quota) / int(period)))  # "max": no limit
    return max(1, min(cores))


def wanted_hosts(given: int | str | None) -> int | None:
    """What a user gives, as `PipelinePaths.hosts` has it; raises if it is neither a number nor "auto".

    >>> wanted_hosts("auto") == AUTO, wanted_hosts(2), wanted_hosts(None)
    (True, 2, None)
    """
    if given == "auto":
        return AUTO
    if given is not None and (not isinstance(given, int) or given < 0):
        raise TocsinError(f"there cannot be {given!r} hosts", hint='a number, or "auto"; 0 for none')
    return given


def host_count(wanted: int | None = None) -> int:
    """How many hosts this machine's executors have.

    >>> host_count(3), host_count(0), host_count(AUTO) == available_cores()
    (3, 0, True)
    """
    if not hasattr(socket, "AF_UNIX") or os.name != "posix":
        return 0
    given = os.environ.get(SETTING, "")
    if wanted is None and given:
        try:
            wanted = AUTO if given == "auto" else int(given)
        except ValueError:
            raise TocsinError(f"{SETTING} is {given!r}", hint="a number, or auto; 0 for none") from None
    if wanted is None:
        return 0
    if wanted == AUTO:
        return available_cores()
    if wanted < 0:
        raise TocsinError(f"there cannot be {wanted} hosts", hint="0 keeps the engines in the workers")
    return wanted


def hosts_for(wanted: int | None) -> Hosts | None:
    """The hosts of the executor that this process works for; None if the workers keep the engines."""
    count = host_count(wanted)
    return _hosts(count, os.getpid()) if count else None


@lru_cache(maxsize=4)
def _hosts(count: int, pid: int) -> Hosts:
    return Hosts(count, java_above(pid))


class Hosts:
    """The hosts of one owner, as a worker sees them. Connections stay open; not safe for several threads."""

    def __init__(
        self, count: int, owner: ProcessId | None, *, idle: float = IDLE, folder: str | Path | None = None
    ) -> None:
        self.count, self.owner, self.idle = count, owner, idle
        what = repr((count, owner, sys.executable, str(Path(__file__).parent))).encode()
        self.directory = host_root(folder) / f"{host_prefix()}{blake2b(what, digest_size=8).hexdigest()}"
        self._connections: dict[int, socket.socket] = {}
        self._pids: dict[int, int | None] = {}  # the process behind the last connection to each host

    def number(self, name: str) -> int:
        """The host of a shard; consecutive shards of a group have different hosts."""
        group, _, last = name.rpartition("|")
        first = shard_of_text(group, 2**32)
        return (first + int(last if last.isdecimal() else 0)) % self.count

    def step(self, step: ShardStep, blobs: Blobs) -> ShardResult:
        """Have a host run a step; `blobs` reads the state, if the host needs it. Retries once."""
        number = self.number(step.name)
        try:
            return self._step(number, step, blobs)
        except PeerClosed:  # the host ended, or was killed: all it had is in the state
            self._wait_for_end(number)
        try:
            return self._step(number, step, blobs)
        except PeerClosed as error:
            raise TocsinError(
                f"the host of shard {step.name!r} broke twice: {error}{log_tail(self.directory, number)}",
                hint="nothing is lost: Spark tries the task again; is there enough memory?",
            ) from error

    def start(self) -> None:
        """Start all hosts that do not run yet, from one process, and wait until they listen."""
        import fcntl

        make_private(self.directory)
        missing = []
        with ExitStack() as locks:
            for number in range(self.count):
                lock = locks.enter_context(open(self.directory / f"{number}.lock", "w"))
                fcntl.flock(lock, fcntl.LOCK_EX)
                try:
                    self._connect(number).close()
                except PeerClosed:
                    missing.append(number)
            if missing:
                start_hosts(self.directory, missing, self.owner, self.idle)

    def drop(self, paths: PipelinePaths, name: str) -> None:
        """Tell the host, if it runs, that a shard no longer exists."""
        number = self.number(name)
        with suppress(PeerClosed):
            connection = self._connections.get(number) or self._connect(number)
            self._connections[number] = connection
            with self._conversation(number):
                send(connection, {"do": "drop", "paths": paths_to_json(paths), "name": name})
                _raise_failure(receive(connection)[0])

    def stats(self) -> list[dict[str, Any]]:
        """The counters of each running host."""
        return _stats(self.directory)

    def close(self) -> None:
        """Close the connections; the hosts keep running."""
        for number in list(self._connections):
            self._close(number)

    def _step(self, number: int, step: ShardStep, blobs: Blobs) -> ShardResult:
        connection = self._connections.get(number)
        if connection is None:
            connection = self._connections[number] = self._connect_or_start(number)
        kinds = [[kind, len(payloads)] for kind, payloads in step.messages.items()]
        meta = list(step.meta) if step.meta is not None else None
        header = {"do": "step", "paths": paths_to_json(step.paths), "stage": step.stage, "name": step.name}
        with self._conversation(number):
            payloads = [payload for payloads in step.messages.values() for payload in payloads]
            send(connection, header | {"meta": meta, "kinds": kinds}, payloads)
            answer, out = receive(connection)
            if answer["answer"] == "blobs":
                send(connection, {"do": "blobs"}, list(blobs(answer["first"])))
                answer, out = receive(connection)
        _raise_failure(answer)
        names = answer["messages"]
        messages = [
            ShardMessage(shard, kind, payload) for (shard, kind), payload in zip(names, out, strict=False)
        ]
        return ShardResult(messages, StateMeta(*answer["meta"]), out[len(names) :], answer["replace"])

    @contextmanager
    def _conversation(self, number: int) -> Iterator[None]:
        """Close the connection if a conversation breaks off: the next one could not use it."""
        try:
            yield
        except BaseException:
            self._close(number)
            raise

    # -- connections -----------------------------------------------------------------------------------

    def _connect_or_start(self, number: int) -> socket.socket:
        """A connection to a host; of several workers that find none, one starts it."""
        with suppress(PeerClosed):
            return self._connect(number)
        import fcntl

        try:
            make_private(self.directory)
            with open(self.directory / f"{number}.lock", "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                with suppress(PeerClosed):
                    return self._connect(number)
                start_hosts(self.directory, [number], self.owner, self.idle)
                return self._connect(number)
        except (OSError, TocsinError) as error:
            raise NoHost(
                f"a shard host cannot be had: {error}", hint="Python workers keep the shards instead"
            ) from error

    def _connect(self, number: int) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(str(self.directory / f"{number}.sock"))
        except OSError as error:
            connection.close()
            raise PeerClosed(str(error)) from error
        self._pids[number] = _peer(connection)
        return connection

    def _wait_for_end(self, number: int) -> None:
        """Wait for a broken host to end: it accepts connections until its last thread is gone."""
        broken, until = self._pids.get(number), monotonic() + DYING
        while monotonic() < until:
            try:
                connection = self._connect(number)
            except PeerClosed:
                return
            connection.close()
            if broken is None or self._pids[number] != broken:
                return
            sleep(0.02)

    def _close(self, number: int) -> None:
        connection = self._connections.pop(number, None)
        if connection is not None:
            connection.close()


def host_stats(folder: str | Path | None = None) -> list[dict[str, Any]]:
    """The counters of each host of this user on this machine: engines, bytes, steps, rebuilds, seconds."""
    return [facts for path in sorted(host_root(folder).glob(f"{host_prefix()}*")) for facts in _stats(path)]


def _stats(directory: Path) -> list[dict[str, Any]]:
    found = []
    for path in sorted(directory.glob("*.sock")):
        with suppress(OSError, PeerClosed), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(5)
            connection.connect(str(path))
            send(connection, {"do": "stats"})
            facts, _ = receive(connection)
            del facts["answer"]
            found.append(facts)
    return found


def _peer(connection: socket.socket) -> int | None:
    """The process at the other end; None if the system does not say."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[0])


def _raise_failure(answer: Header) -> None:
    if answer["answer"] == "failed":
        raise StepFailed(answer["error"], hint=f"in a shard host:\n{answer['traceback']}")
