"""A shard host as a process: its directory, how a worker starts it, and the JVM that it ends with.

    python -m tocsin.spark.hosting.process <directory> <numbers> <owner pid> <owner start time> <idle seconds>

Several hosts, as in `0,1`, are forked from one process, which imports everything once and ends.

Process identities come from /proc; where there is none, a host has no owner and ends only after idling.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tocsin.errors import TocsinError

if TYPE_CHECKING:
    from tocsin.spark.hosting.server import HostServer

__all__ = [
    "ProcessId", "host_prefix", "host_root", "is_alive", "java_above", "log_tail", "process_id",
    "resident_bytes", "start_hosts",
]  # fmt: skip

START_TIMEOUT = 60.0  # seconds until a host must listen
_LONGEST = 100  # bytes of a socket's path; the system accepts 107

_started: list[subprocess.Popen[bytes]] = []  # hosts of this process, to be reaped when they end


# -- which process -------------------------------------------------------------------------------------


class ProcessId(NamedTuple):
    """A process. The system reuses a pid after the process has ended; a pid with its start time is unique."""

    pid: int
    started: int  # in ticks since the machine was started


def process_id(pid: int) -> ProcessId | None:
    """The identity of a running process; None if it has ended, or without /proc."""
    facts = _facts(pid)
    return ProcessId(pid, facts[2]) if facts is not None else None


def java_above(pid: int) -> ProcessId | None:
    """The nearest Java process among a process and its ancestors."""
    while (facts := _facts(pid)) is not None:
        if facts[0] == "java":
            return ProcessId(pid, facts[2])
        pid = facts[1]
    return None


def is_alive(process: ProcessId) -> bool:
    """Whether the process has not ended."""
    return process_id(process.pid) == process


def resident_bytes(pid: int | None = None) -> int:
    """The resident memory of a process; 0 without /proc."""
    try:
        pages = int(Path(f"/proc/{pid or os.getpid()}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGESIZE")


def _facts(pid: int) -> tuple[str, int, int] | None:
    """(name, parent, start time); None for a process that has ended, reaped or not."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    return None if fields[0] in "ZX" else (name, int(fields[1]), int(fields[19]))


# -- its directory -------------------------------------------------------------------------------------


def host_prefix() -> str:
    """How the names of this user's host directories begin."""
    return f"tocsin-hosts-{os.getuid()}-"


def host_root(folder: str | Path | None) -> Path:
    """Where host directories are; /tmp if a socket's path would be too long there."""
    path = Path(folder or tempfile.gettempdir()).absolute()
    length = len(os.fsencode(path)) + len(host_prefix()) + 16 + len("/999.sock") + 1
    return path if length <= _LONGEST else Path("/tmp")


def log_tail(directory: Path, number: int) -> str:
    """The end of a host's log."""
    try:
        lines = (directory / f"{number}.log").read_text(errors="replace").splitlines()[-20:]
    except OSError:
        return ""
    return "\n" + "\n".join(lines) if lines else ""


# -- its life ------------------------------------------------------------------------------------------


def start_hosts(directory: Path, numbers: Sequence[int], owner: ProcessId | None, idle: float) -> None:
    """Start hosts that outlive this process, and wait until they listen."""
    _started[:] = [process for process in _started if process.poll() is None]
    for number in numbers:
        with suppress(FileNotFoundError):
            os.unlink(directory / f"{number}.sock")
    owner = owner or ProcessId(0, 0)
    wanted = ",".join(map(str, numbers))
    arguments = [str(directory), wanted, str(owner.pid), str(owner.started), str(idle)]
    # without Spark's own variables between daemon and worker, and with all that this process can import
    ours = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON_WORKER_FACTORY")}
    paths = os.pathsep.join(os.path.abspath(path) for path in sys.path)
    with open(directory / f"{numbers[0]}.log", "a") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tocsin.spark.hosting.process", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            close_fds=True,  # none of Spark's sockets
            start_new_session=True,  # none of the signals to the worker's group
            cwd=directory,
            env=ours | {"PYTHONPATH": paths},
        )
    assert process.stdout is not None
    with process.stdout as ready:
        listens = select.select([ready], [], [], START_TIMEOUT)[0] and ready.read(1)
    if not listens:
        process.kill()
        process.wait()
        raise TocsinError(
            f"a shard host did not start{log_tail(directory, numbers[0])}", hint="it runs this Python"
        )
    _started.append(process)


def main(directory: str, numbers: str, pid: str, started: str, idle: str) -> None:
    """Run a host in this process, or fork several from it."""
    from tocsin.spark.hosting.server import HostServer

    owner = ProcessId(int(pid), int(started)) if int(pid) else None
    hosts = [HostServer(Path(directory), int(number), owner, float(idle)) for number in numbers.split(",")]
    os.write(1, b".")  # they listen: workers can connect, and their first step waits
    os.dup2(2, 1)
    if len(hosts) > 1:
        import tocsin.compiled.backend
        import tocsin.spark.hosting.engines  # noqa: F401

        mine = next((host for host in hosts if _forked(host, hosts)), None)
        if mine is None:
            return
    else:
        mine = hosts[0]
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    faulthandler.enable()  # a crash of compiled code leaves its traceback in the log
    mine.serve()


def _forked(host: HostServer, hosts: Sequence[HostServer]) -> bool:
    """Fork; whether this is the new process. It has the host's socket alone, and writes the host's log."""
    if os.fork():
        host.socket.close()
        return False
    for other in hosts:
        if other is not host:
            other.socket.close()  # it would accept connections when the other host has ended
    log = os.open(host.directory / f"{host.number}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    return True


if __name__ == "__main__":
    main(*sys.argv[1:])
