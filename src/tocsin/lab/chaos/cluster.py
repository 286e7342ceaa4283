"""Spark in processes of its own: a standalone cluster, or a Connect server, on this machine.

    with cluster(workers=2, cores=1) as master:       with connect() as url:
        spark = session(master=master)                    spark = session(master=url)

They are real processes on loopback, started from the jars of the package pyspark, for tests and experiments:
what holds here holds on any cluster. Ports are free ones; logs go to a folder. All processes are killed when
the block ends, and also when the process that started them dies in any way: each Java runs in a process
group behind a shell that waits for the end of a pipe.

    this process ──pipe──► sh ─► java Master                    (one process group each)
                 ──pipe──► sh ─► java Worker ─► java executor ─► python

`python -m tocsin.lab.chaos.cluster` does the same for people, until Ctrl-C.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Self

import pyspark

from tocsin.errors import TocsinError
from tocsin.spark.java import ensure_java
from tocsin.spark.sessions import QUICK_JVM, settings

__all__ = ["Cluster", "Process", "cluster", "connect"]

HOST = "127.0.0.1"
PATIENCE = 90.0  # seconds until a process must be ready
_HOME = Path(pyspark.__file__).parent
# The packages that Spark's own scripts open to reflection.
_OPENED = (
    "java.base/java.lang java.base/java.lang.invoke java.base/java.lang.reflect java.base/java.io "
    "java.base/java.net java.base/java.nio java.base/java.util java.base/java.util.concurrent "
    "java.base/java.util.concurrent.atomic java.base/jdk.internal.ref java.base/sun.nio.ch "
    "java.base/sun.nio.cs java.base/sun.security.action java.base/sun.util.calendar "
    "java.security.jgss/sun.security.krb5"
).split()
# The group dies with its Java, and with whoever holds the other end of the pipe.
_GUARD = '{ "$@" </dev/null; kill -9 0; } & read -r _; kill -9 0'


class Process:
    """A Java program in a process group of its own, with its output in a file."""

    def __init__(self, name: str, command: Sequence[str], log: Path, env: Mapping[str, str]) -> None:
        self.name, self.log = name, log
        with open(log, "ab") as out:
            self._guard = subprocess.Popen(
                ["sh", "-c", _GUARD, "sh", *command],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=env,
                process_group=0,
            )

    @classmethod
    def java(
        cls,
        name: str,
        options: Sequence[str],
        log: Path,
        *,
        jars: str | None = None,
        within: Sequence[str] = (),
    ) -> Self:
        """Start Java with Spark's jars, or other ones; `within` is a command that starts it elsewhere."""
        java = ensure_java().home / "bin" / "java"
        opened = [f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED]
        env = os.environ | {
            "SPARK_HOME": str(_HOME),
            "SPARK_SCALA_VERSION": _scala_version(),
            "SPARK_LOCAL_IP": HOST,
            "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
        }
        where = jars if jars is not None else f"{_HOME / 'jars'}/*"
        command = [*within, str(java), "-cp", where, *QUICK_JVM.split(), "-Xmx1g", *opened, *options]
        return cls(name, command, log, env)

    @property
    def group(self) -> int:
        return self._guard.pid

    def pause(self) -> None:
        """Wait a moment, or until it ends."""
        with suppress(subprocess.TimeoutExpired):
            self._guard.wait(0.05)

    def is_alive(self) -> bool:
        return self._guard.poll() is None

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Wait until the log matches a pattern."""
        deadline = time.monotonic() + PATIENCE
        while True:
            alive = self.is_alive()
            text = self.log.read_text(errors="replace")
            found = re.search(pattern, text)
            if found is not None:
                return found
            if not alive or time.monotonic() > deadline:
                tail = "\n".join(text.splitlines()[-20:])
                raise TocsinError(
                    f"{self.name} {'did not become ready' if alive else 'ended'}:\n{tail}",
                    hint=f"its log is {self.log}",
                )
            self.pause()

    def kill(self) -> None:
        """Kill the process and all that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self._guard.pid, signal.SIGKILL)
        self._guard.wait()
        if self._guard.stdin is not None:
            self._guard.stdin.close()


class Cluster:
    """A master and workers."""

    def __init__(self, cores: int, logs: Path, within: Sequence[str] = ()) -> None:
        """`within` is a command that starts each process, as in a namespace of its own."""
        self.cores, self.logs, self._within = cores, logs, within
        self.workers: list[Process] = []
        self._started = 0
        options = [
            "org.apache.spark.deploy.master.Master",
            "--host",
            HOST,
            "--port",
            "0",
            "--webui-port",
            "0",
        ]
        self.master = Process.java("the master", options, logs / "master.log", within=within)
        try:
            self.url = self.master.wait_for(r"Starting Spark master at (spark://\S+)")[1]
        except BaseException:
            self.master.kill()
            raise

    def add_worker(self) -> Process:
        """Start a worker; `ready` waits for it."""
        self._started += 1
        name = f"worker-{self._started}"
        options = [
            "org.apache.spark.deploy.worker.Worker",
            "--host",
            HOST,
            "--port",
            "0",
            "--webui-port",
            "0",
        ]
        options += [
            "--cores",
            str(self.cores),
            "--memory",
            "1g",
            "--work-dir",
            str(self.logs / name),
            self.url,
        ]
        worker = Process.java(name, options, self.logs / f"{name}.log", within=self._within)
        self.workers.append(worker)
        return worker

    def ready(self) -> None:
        for worker in self.workers:
            worker.wait_for("Successfully registered with master")

    def replace_dead(self) -> int:
        """A new worker for each that died; returns how many."""
        dead = [worker for worker in self.workers if not worker.is_alive()]
        for worker in dead:
            worker.kill()
            self.workers.remove(worker)
            self.add_worker()
        return len(dead)

    def stop(self) -> None:
        for process in [*self.workers, self.master]:
            process.kill()


@contextmanager
def running(
    workers: int = 2, cores: int = 1, logs: str | Path | None = None, within: Sequence[str] = ()
) -> Iterator[Cluster]:
    """A cluster with access to its processes; `cluster` gives only its address."""
    with ExitStack() as stack:
        made = Cluster(cores, _folder(logs, stack), within)
        stack.callback(made.stop)
        for _ in range(workers):
            made.add_worker()
        made.ready()
        yield made


@contextmanager
def cluster(workers: int = 2, cores: int = 1, logs: str | Path | None = None) -> Iterator[str]:
    """A standalone cluster; yields the address of its master, for `session(master=...)`.

    `logs` is the folder for the logs and the work of the processes; by default a temporary one.
    """
    with running(workers, cores, logs) as made:
        yield made.url


@contextmanager
def connect(master: str = "local[2,4]", logs: str | Path | None = None, **conf: str) -> Iterator[str]:
    """A Connect server that runs its jobs on `master`; yields its address, for `session(master=...)`."""
    with ExitStack() as stack:
        log = _folder(logs, stack) / "connect.log"
        wanted = settings(master, conf) | {
            "spark.master": master,
            "spark.app.name": "tocsin-connect",
            "spark.connect.grpc.binding.address": HOST,
            "spark.connect.grpc.binding.port": "0",
        }
        options = [f"-D{key}={value}" for key, value in wanted.items()]
        options += ["org.apache.spark.sql.connect.service.SparkConnectServer"]
        server = Process.java("the Connect server", options, log)
        stack.callback(server.kill)
        port = server.wait_for(r"Spark Connect server started at: \S*?:(\d+)")[1]
        yield f"sc://{HOST}:{port}"


def _scala_version() -> str:
    """A worker requires it; Spark's scripts set it from the names of the jars, and so do we."""
    names = (path.name for path in (_HOME / "jars").glob("spark-core_*.jar"))
    return next(names).removeprefix("spark-core_").partition("-")[0]


def _folder(logs: str | Path | None, stack: ExitStack) -> Path:
    if logs is None:
        return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tocsin-cluster-")))
    Path(logs).mkdir(parents=True, exist_ok=True)
    return Path(logs).absolute()


def main(arguments: Sequence[str] | None = None, wait: Callable[[], object] = signal.pause) -> None:
    """Run until Ctrl-C."""
    parser = ArgumentParser(
        "python -m tocsin.lab.chaos.cluster", description="Spark in processes of its own."
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cores", type=int, default=1, help="of each worker")
    parser.add_argument("--logs", default="tocsin-cluster", help="folder for logs and work")
    parser.add_argument("--connect", action="store_true", help="a Connect server on local[2,4] instead")
    given = parser.parse_args(arguments)
    place = connect(logs=given.logs) if given.connect else cluster(given.workers, given.cores, given.logs)
    with place as url, suppress(KeyboardInterrupt):
        print(f"session(master={url!r}); logs in {given.logs}; Ctrl-C ends it", flush=True)
        wait()


if __name__ == "__main__":
    main()
