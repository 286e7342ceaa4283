"""A shard host's side of the conversation: it keeps the live engines of some shards and runs their steps.

    worker                                      host
    step: paths, shard, meta, messages ────────►
                                              ◄─ blobs        if no engine is cached under the state's token
    blobs of the state ────────────────────────►              the host rebuilds the engine
                                              ◄─ done: messages, new meta, blobs (or failed: the traceback)

Each worker has a thread of its own; steps run one at a time. A host keeps nothing that is needed after a
crash: a worker that lost its host starts another one and sends it the blobs.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import socket
import traceback
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from tocsin.spark.hosting.process import ProcessId, is_alive, resident_bytes
from tocsin.spark.hosting.protocol import Header, PeerClosed, receive, send
from tocsin.spark.stages.steps import Layout, PipelinePaths, ShardStep, StateMeta

if TYPE_CHECKING:
    from tocsin.spark.hosting.engines import LiveShards

__all__ = ["HostServer", "paths_from_json", "paths_to_json"]

CHECK_EVERY = 0.5  # seconds between two checks of the owner

log = logging.getLogger("host")


class HostServer:
    """Serves `<directory>/<number>.sock` until its owner has ended or no request came for `idle` seconds."""

    def __init__(self, directory: Path, number: int, owner: ProcessId | None, idle: float) -> None:
        self.directory, self.number, self.owner, self.idle = directory, number, owner, idle
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.bind(str(directory / f"{number}.sock"))
        self.socket.listen(128)
        self._engines = Lock()  # guards the engines and all caches of the process
        self._live: LiveShards
        self._began = self._used = monotonic()
        self._busy = 0  # requests at work
        self._counting = Lock()

    def serve(self) -> None:
        """Serve until the process ends; never returns."""
        self.socket.listen(128)  # again: a forked host tells its own process id to those who connect
        with self._engines:  # workers can connect already; their first step waits
            Thread(target=self._accept, daemon=True).start()
            from tocsin.spark.hosting.engines import LiveShards  # loads the compiler: two seconds

            self._live = LiveShards()
        log.info("host %d (process %d) of %s", self.number, os.getpid(), self.owner)
        while True:
            sleep(min(CHECK_EVERY, self.idle / 4))
            if self.owner is not None and not is_alive(self.owner):
                self._exit("the owner has ended", remove_directory=True)
            if not self._busy and monotonic() - self._used > self.idle:
                self._exit(f"no request for {self.idle:g} s", remove_directory=False)
            with self._engines:
                self._live.evict_idle(self.idle)

    def _accept(self) -> None:
        while True:
            connection, _ = self.socket.accept()
            Thread(target=self._serve_worker, args=(connection,), daemon=True).start()

    def _serve_worker(self, connection: socket.socket) -> None:
        with connection, suppress(PeerClosed):  # a worker that has ended needs no answer
            while True:
                header, payloads = receive(connection)
                with self._counting:
                    self._busy += 1
                try:
                    self._answer(connection, header, payloads)
                finally:
                    with self._counting:
                        self._busy -= 1
                        self._used = monotonic() if header["do"] != "stats" else self._used

    def _answer(self, connection: socket.socket, header: Header, payloads: list[bytes]) -> None:
        try:
            if header["do"] == "step":
                answer, out = self._step(connection, header, payloads)
            elif header["do"] == "drop":
                with self._engines:
                    self._live.drop(paths_from_json(header["paths"]), header["name"])
                answer, out = {"answer": "done"}, []
            else:
                answer, out = {"answer": "done", **self.stats()}, []
        except PeerClosed:
            raise
        except Exception as error:  # whatever it is, the worker raises it
            log.exception("%s of %s failed", header["do"], header.get("name"))
            answer, out = {"answer": "failed", "error": f"{type(error).__name__}: {error}"}, []
            answer["traceback"] = traceback.format_exc()
        send(connection, answer, out)

    def _step(
        self, connection: socket.socket, header: Header, payloads: list[bytes]
    ) -> tuple[Header, list[bytes]]:
        step = step_from_json(header, payloads)
        blobs: list[bytes] = []
        with self._engines:
            taken = self._live.take(step)
        if taken.first is not None:  # receive without the lock: a worker may be slow
            send(connection, {"answer": "blobs", "first": taken.first})
            _, blobs = receive(connection)
        with self._engines:
            result = self._live.run(step, taken, lambda first: blobs)
        messages = [[message.shard, message.kind] for message in result.messages]
        answer = {
            "answer": "done",
            "messages": messages,
            "meta": list(result.meta),
            "replace": result.replace,
        }
        return answer, [*(message.payload for message in result.messages), *result.blobs]

    def stats(self) -> dict[str, Any]:
        """Counters since the start."""
        live = self.__dict__.get("_live")
        return {
            "host": self.number,
            "pid": os.getpid(),
            "owner": self.owner.pid if self.owner is not None else None,
            "seconds": monotonic() - self._began,
            "bytes": resident_bytes(),
            "engines": len(live) if live is not None else 0,
            **(live.counters.as_dict() if live is not None else {}),
        }

    def _exit(self, why: str, *, remove_directory: bool) -> None:
        """End the process. When the owner has ended, nobody will connect again: remove the directory too."""
        log.info("exit: %s", why)
        if remove_directory:
            shutil.rmtree(self.directory, ignore_errors=True)
            os._exit(0)
        with open(self.directory / f"{self.number}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # nobody starts another host meanwhile
            with suppress(FileNotFoundError):
                os.unlink(self.directory / f"{self.number}.sock")
            os._exit(0)


def paths_to_json(paths: PipelinePaths) -> list[Any]:
    return [paths.versions, paths.pins, paths.layout.as_dict(), paths.query, paths.hosts, paths.output]


def paths_from_json(values: list[Any]) -> PipelinePaths:
    versions, pins, layout, query, hosts, output = values
    return PipelinePaths(versions, pins, Layout(**layout), query, hosts, output)


def step_from_json(header: Header, payloads: list[bytes]) -> ShardStep:
    """A step from a frame: `kinds` says how many payloads each kind of message has."""
    messages: dict[str, list[bytes]] = {}
    at = 0
    for kind, count in header["kinds"]:
        messages[kind] = payloads[at : at + count]
        at += count
    meta = StateMeta(*header["meta"]) if header["meta"] is not None else None
    return ShardStep(paths_from_json(header["paths"]), header["stage"], header["name"], meta, messages)
