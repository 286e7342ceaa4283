"""Shard hosts: processes beside an executor that own the live engines, so that workers come and go freely.

    worker (transformWithState) ── unix socket ──► host k        k by the shard's name
           state in RocksDB        messages, blobs      one engine per shard

Spark hands the batches of a shard to whichever Python worker is free, so an engine kept in a worker is
stale a third of the time, and in the end every worker has a copy of every shard. A host is asked by
all workers of its executor: it has each shard **once**, and a worker is light (no engine, no compiler).

- *How many*: one per core, at most 8; `TOCSIN_HOSTS` in the executor's environment, or `Place.hosts` from the
  driver, which goes first. 0 keeps the engines in the workers.
- *Memory*: per machine, about 150 MB per host for the code, and each shard's tables, subscriptions and
  indexes once, whatever the number of workers, tasks and hosts. For a moment a rebuilt shard also has its
  blobs. A host of a JVM that runs several pipelines has the shards of all; those that nobody asked
  for in ten minutes are let go. With `spark.executor.pyspark.memory` a host has the limit of a worker.
- *Life*: started by the first worker that needs one, in `<tmp>/tocsin-hosts-<uid>-<digest>/` (0700; its log
  is there), for one executor's JVM. It ends with that JVM (where /proc tells), or after ten minutes
  without a request.
- *Crash*: nothing is lost, all is in the state. The worker starts another host, once, and sends the blobs; if
  that fails too it raises, and Spark tries the task again.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import select
import socket
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from tocsin.errors import TocsinError
from tocsin.spark.hosting.process import Owner, java_of
from tocsin.spark.hosting.protocol import Gone, Header, receive, send
from tocsin.spark.hosting.server import Host, place_out
from tocsin.spark.stages.state import Blobs, Done, Meta, Place, Step
from tocsin.spark.stages.wire import Message

__all__ = ["SETTING", "Hosts", "StepFailed", "host_count", "host_stats", "hosts_for"]

SETTING = "TOCSIN_HOSTS"
MOST = 8
IDLE = 600.0  # seconds
PATIENCE = 60.0  # seconds until a host must listen
DYING = 2.0  # seconds that a host may take to be gone after it was killed
_CREDENTIALS = struct.Struct("3i")  # process, user, group
_LONGEST = 100  # bytes of a socket's path; the system takes 107


class StepFailed(TocsinError):
    """The engine raised; the hint is its traceback."""


def host_count(wanted: int | None = None) -> int:
    """How many hosts this machine's executors have.

    >>> host_count(3), host_count(0)
    (3, 0)
    """
    if not hasattr(socket, "AF_UNIX") or os.name != "posix":
        return 0
    if wanted is None and os.environ.get(SETTING, ""):
        try:
            wanted = int(os.environ[SETTING])
        except ValueError:
            raise TocsinError(f"{SETTING} is {os.environ[SETTING]!r}", hint="a number; 0 for none") from None
    if wanted is None:
        return min(os.cpu_count() or 1, MOST)
    if wanted < 0:
        raise TocsinError(f"there cannot be {wanted} hosts", hint="0 keeps the engines in the workers")
    return wanted


def hosts_for(wanted: int | None) -> Hosts | None:
    """The hosts of the executor that this process works for; None if engines are kept in the workers."""
    count = host_count(wanted)
    return _hosts(count, os.getpid()) if count else None


@lru_cache(maxsize=4)
def _hosts(count: int, pid: int) -> Hosts:
    return Hosts(count, java_of(pid))


class Hosts:
    """The hosts of one owner, as a client sees them. Connections are kept; not for several threads."""

    def __init__(
        self, count: int, owner: Owner | None, *, idle: float = IDLE, folder: str | Path | None = None
    ) -> None:
        self.count, self.owner, self.idle = count, owner, idle
        what = repr((count, owner, sys.executable, str(Path(__file__).parent))).encode()
        self.directory = _folder(folder) / f"{_prefix()}{blake2b(what, digest_size=8).hexdigest()}"
        self._open: dict[int, socket.socket] = {}
        self._peers: dict[int, int | None] = {}  # the process of each host that was last connected to

    def number(self, name: str) -> int:
        """The host of a shard: neighbours of a group have different ones."""
        group, _, last = name.rpartition("|")
        return (zlib.crc32(group.encode()) + int(last if last.isdecimal() else 0)) % self.count

    def step(self, step: Step, blobs: Blobs) -> Done:
        """Have a step done; `blobs` reads the state, if the host asks for it."""
        number = self.number(step.name)
        try:
            return self._step(number, step, blobs)
        except Gone:  # it ended, or was ended: all it had is in the state
            self._wait_for_end(number)
        try:
            return self._step(number, step, blobs)
        except Gone as error:
            raise TocsinError(
                f"the host of shard {step.name!r} broke twice: {error}{self._tail(number)}",
                hint="nothing is lost: Spark tries the task again; is there enough memory?",
            ) from error

    def forget(self, place: Place, name: str) -> None:
        """Tell the host, if there is one, that a shard is no more."""
        number = self.number(name)
        with suppress(Gone):
            connection = self._open.get(number) or self._connect(number)
            self._open[number] = connection
            with self._whole(number):
                send(connection, {"do": "forget", "place": place_out(place), "name": name})
                _checked(receive(connection)[0])

    def stats(self) -> list[dict[str, Any]]:
        """What each host that runs says of itself."""
        return _stats(self.directory)

    def close(self) -> None:
        """Let go of the connections; the hosts stay."""
        for number in list(self._open):
            self._close(number)

    def _step(self, number: int, step: Step, blobs: Blobs) -> Done:
        connection = self._open.get(number)
        if connection is None:
            connection = self._open[number] = self._connection(number)
        kinds = [[kind, len(payloads)] for kind, payloads in step.messages.items()]
        meta = list(step.meta) if step.meta is not None else None
        header = {"do": "step", "place": place_out(step.place), "stage": step.stage, "name": step.name}
        with self._whole(number):
            payloads = [payload for payloads in step.messages.values() for payload in payloads]
            send(connection, header | {"meta": meta, "kinds": kinds}, payloads)
            answer, out = receive(connection)
            if answer["answer"] == "blobs":
                send(connection, {"do": "blobs"}, list(blobs()))
                answer, out = receive(connection)
        _checked(answer)
        names = answer["messages"]
        messages = [Message(shard, kind, payload) for (shard, kind), payload in zip(names, out, strict=False)]
        return Done(messages, Meta(*answer["meta"]), out[len(names) :], answer["whole"])

    @contextmanager
    def _whole(self, number: int) -> Iterator[None]:
        """A conversation that is not brought to its end leaves a connection that nobody can use."""
        try:
            yield
        except BaseException:
            self._close(number)
            raise

    # -- starting --------------------------------------------------------------------------------------

    def _connection(self, number: int) -> socket.socket:
        """To a host that runs, or to a new one; of several that want one, only one starts it."""
        with suppress(Gone):
            return self._connect(number)
        import fcntl

        _private(self.directory)
        with open(self.directory / f"{number}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with suppress(Gone):
                return self._connect(number)
            self._start(number)
            return self._connect(number)

    def _connect(self, number: int) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(str(self.directory / f"{number}.sock"))
        except OSError as error:
            connection.close()
            raise Gone(str(error)) from error
        self._peers[number] = _peer(connection)
        return connection

    def _wait_for_end(self, number: int) -> None:
        """A host that was killed takes connections until its last thread is gone; a new one answers."""
        broken, until = self._peers.get(number), monotonic() + DYING
        while monotonic() < until:
            try:
                connection = self._connect(number)
            except Gone:
                return
            connection.close()
            if broken is None or self._peers[number] != broken:
                return
            sleep(0.02)

    def _start(self, number: int) -> None:
        """Start a host, of which this process knows nothing afterwards, and wait until it listens."""
        _started[:] = [process for process in _started if process.poll() is None]  # those that ended
        with suppress(FileNotFoundError):
            os.unlink(self.directory / f"{number}.sock")
        owner = self.owner or Owner(0, 0)
        arguments = [str(self.directory), str(number), str(owner.pid), str(owner.started), str(self.idle)]
        with open(self.directory / f"{number}.log", "a") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tocsin.spark.hosting.client", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                close_fds=True,  # none of Spark's sockets
                start_new_session=True,  # none of the signals to the worker's group
                cwd=self.directory,
                env=_environment(),
            )
        assert process.stdout is not None
        with process.stdout as ready:
            told = select.select([ready], [], [], PATIENCE)[0] and ready.read(1)
        if not told:
            process.kill()
            process.wait()
            raise TocsinError(f"a shard host did not start{self._tail(number)}", hint="it runs this Python")
        _started.append(process)

    def _close(self, number: int) -> None:
        connection = self._open.pop(number, None)
        if connection is not None:
            connection.close()

    def _tail(self, number: int) -> str:
        """The end of a host's log."""
        try:
            lines = (self.directory / f"{number}.log").read_text(errors="replace").splitlines()[-20:]
        except OSError:
            return ""
        return "\n" + "\n".join(lines) if lines else ""


_started: list[subprocess.Popen[bytes]] = []  # to be waited for when they end before us


def host_stats(folder: str | Path | None = None) -> list[dict[str, Any]]:
    """What each host of this user on this machine says: engines, bytes, steps, rebuilds, seconds."""
    return [facts for path in sorted(_folder(folder).glob(f"{_prefix()}*")) for facts in _stats(path)]


def _stats(directory: Path) -> list[dict[str, Any]]:
    found = []
    for path in sorted(directory.glob("*.sock")):
        with suppress(OSError, Gone), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(5)
            connection.connect(str(path))
            send(connection, {"do": "stats"})
            facts, _ = receive(connection)
            del facts["answer"]
            found.append(facts)
    return found


def _peer(connection: socket.socket) -> int | None:
    """The process at the other end, where the system tells."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[0])


def _checked(answer: Header) -> None:
    if answer["answer"] == "failed":
        raise StepFailed(answer["error"], hint=f"in a shard host:\n{answer['traceback']}")


def _prefix() -> str:
    return f"tocsin-hosts-{os.getuid()}-"


def _folder(folder: str | Path | None) -> Path:
    """Where the directories of hosts are; not so deep that a socket's path becomes too long."""
    path = Path(folder or tempfile.gettempdir()).absolute()
    room = len(os.fsencode(path)) + len(_prefix()) + 16 + len("/999.sock") + 1
    return path if room <= _LONGEST else Path("/tmp")


def _private(directory: Path) -> None:
    """Make a directory for this user alone, or see that it is so."""
    directory.mkdir(mode=0o700, exist_ok=True)
    facts = directory.lstat()
    if (
        not directory.is_dir()
        or directory.is_symlink()
        or facts.st_uid != os.getuid()
        or facts.st_mode & 0o077
    ):
        raise TocsinError(f"{directory} is not a directory of this user alone", hint="remove it")


def _environment() -> dict[str, str]:
    """This process's, without what is Spark's between it and its workers, and with all that it can import."""
    ours = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON_WORKER_FACTORY")}
    return ours | {"PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path)}


def main(directory: str, number: str, pid: str, started: str, idle: str) -> None:
    """Be a host."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    faulthandler.enable()  # a crash of compiled code leaves its traceback in the log
    owner = Owner(int(pid), int(started)) if int(pid) else None
    host = Host(Path(directory), int(number), owner, float(idle))
    os.write(1, b".")  # it listens
    os.dup2(2, 1)
    host.serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
