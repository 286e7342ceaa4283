"""A shard host: a process that keeps the live engines of some shards and steps them for whoever asks.

One conversation over a socket:

    worker                                      host
    step: place, shard, state's line, messages ─►
                                              ◄─ blobs        if the engine of that token is not here
    blobs of the state ────────────────────────►              it is rebuilt
                                              ◄─ done: messages, new line, blobs (or failed: the traceback)

Several workers are heard at once, a thread each; steps are done one at a time. Nothing in here is needed
again after a crash: a worker that lost its host asks another one, with the blobs.
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

from tocsin.spark.hosting.process import Owner, lives, resident
from tocsin.spark.hosting.protocol import Gone, Header, receive, send
from tocsin.spark.stages.state import Layout, Meta, Place, Step

if TYPE_CHECKING:
    from tocsin.spark.hosting.engines import Live

__all__ = ["Host", "place_from", "place_out"]

EVERY = 0.5  # seconds between two looks at the owner

log = logging.getLogger("host")


class Host:
    """Serves `<directory>/<number>.sock` until its owner has ended or nobody has asked for `idle` seconds."""

    def __init__(self, directory: Path, number: int, owner: Owner | None, idle: float) -> None:
        self.directory, self.number, self.owner, self.idle = directory, number, owner, idle
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.bind(str(directory / f"{number}.sock"))
        self.socket.listen(128)
        self._step = Lock()  # of the engines, and of everyone's rooms and caches
        self._live: Live
        self._began = self._used = monotonic()
        self._busy = 0
        self._count = Lock()

    def serve(self) -> None:
        """Never returns: the process ends."""
        with self._step:  # whoever connects meanwhile waits for its first step
            Thread(target=self._accept, daemon=True).start()
            from tocsin.spark.hosting.engines import Live  # the engine, and with it the compiler: two seconds

            self._live = Live()
        log.info("host %d (process %d) of %s", self.number, os.getpid(), self.owner)
        while True:
            sleep(min(EVERY, self.idle / 4))
            if self.owner is not None and not lives(self.owner):
                self._end("the owner has ended", everything=True)
            if not self._busy and monotonic() - self._used > self.idle:
                self._end(f"nobody asked for {self.idle:g} s", everything=False)
            with self._step:
                self._live.forget_idle(self.idle)

    def _accept(self) -> None:
        while True:
            connection, _ = self.socket.accept()
            Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        with connection, suppress(Gone):  # a worker that is gone needs no answer
            while True:
                header, payloads = receive(connection)
                with self._count:
                    self._busy += 1
                try:
                    self._answer(connection, header, payloads)
                finally:
                    with self._count:
                        self._busy -= 1
                        self._used = monotonic() if header["do"] != "stats" else self._used

    def _answer(self, connection: socket.socket, header: Header, payloads: list[bytes]) -> None:
        try:
            if header["do"] == "step":
                answer, out = self._step_once(connection, header, payloads)
            elif header["do"] == "forget":
                with self._step:
                    self._live.forget(place_from(header["place"]), header["name"])
                answer, out = {"answer": "done"}, []
            else:
                answer, out = {"answer": "done", **self.stats()}, []
        except Gone:
            raise
        except Exception as error:  # whatever it is, it is the worker's to raise
            log.exception("%s of %s failed", header["do"], header.get("name"))
            answer, out = {"answer": "failed", "error": _line(error), "traceback": traceback.format_exc()}, []
        send(connection, answer, out)

    def _step_once(
        self, connection: socket.socket, header: Header, payloads: list[bytes]
    ) -> tuple[Header, list[bytes]]:
        step = step_from(header, payloads)
        blobs: list[bytes] = []
        with self._step:
            shard = self._live.take(step)
        if shard is None:  # asked without the lock: a worker may be slow
            send(connection, {"answer": "blobs"})
            _, blobs = receive(connection)
        with self._step:
            done = self._live.run(step, shard, blobs)
        messages = [[message.shard, message.kind] for message in done.messages]
        answer = {"answer": "done", "messages": messages, "meta": list(done.meta), "whole": done.whole}
        return answer, [*(message.payload for message in done.messages), *done.blobs]

    def stats(self) -> dict[str, Any]:
        """For watching: what it has and did so far."""
        live = self.__dict__.get("_live")
        return {
            "host": self.number,
            "pid": os.getpid(),
            "owner": self.owner.pid if self.owner is not None else None,
            "seconds": monotonic() - self._began,
            "bytes": resident(),
            "engines": len(live) if live is not None else 0,
            **(live.tally.as_dict() if live is not None else {}),
        }

    def _end(self, why: str, *, everything: bool) -> None:
        """End the process. Without an owner nobody will come any more, so the directory goes too."""
        log.info("the end: %s", why)
        if everything:
            shutil.rmtree(self.directory, ignore_errors=True)
            os._exit(0)
        with open(self.directory / f"{self.number}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # nobody starts another while the socket goes
            with suppress(FileNotFoundError):
                os.unlink(self.directory / f"{self.number}.sock")
            os._exit(0)


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def place_out(place: Place) -> list[Any]:
    """A place as JSON has it."""
    return [place.versions, place.pins, place.layout.as_dict(), place.query, place.hosts]


def place_from(values: list[Any]) -> Place:
    versions, pins, layout, query, hosts = values
    return Place(versions, pins, Layout(**layout), query, hosts)


def step_from(header: Header, payloads: list[bytes]) -> Step:
    """A step from a frame: `kinds` says how many payloads each kind of message has."""
    messages: dict[str, list[bytes]] = {}
    at = 0
    for kind, count in header["kinds"]:
        messages[kind] = payloads[at : at + count]
        at += count
    meta = Meta(*header["meta"]) if header["meta"] is not None else None
    return Step(place_from(header["place"]), header["stage"], header["name"], meta, messages)
