"""A server that ends itself when it reaches a step, started in a fraction of a second.

A fork server has imported everything; each life of the server is a process of its own, forked from it. It
is killed when it reaches a step of `tocsin.server.steps` for the count-th time; with `-` it is not.
Snapshots are written often, so that their steps are reached.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from itertools import count
from multiprocessing.process import BaseProcess
from pathlib import Path

from tocsin.server import steps
from tocsin.server.keeper import Settings
from tocsin.server.serve import ServeOptions, serve

__all__ = ["start_server"]

SETTINGS = Settings(snapshot_commands=100, snapshot_at_close=10**9, look_every=0.2)


def start_server(folder: Path, port: int, step: str = "-", times: int = 0) -> BaseProcess:
    """A process that serves `folder/data`; what it prints is in `folder/server.log`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    process = context.Process(target=_serve, args=(folder, port, step, times), daemon=True)
    process.start()
    return process


def _serve(folder: Path, port: int, step: str, times: int) -> None:
    """Serve until the step, or until somebody else ends it."""
    os.setpgid(0, 0)  # Ctrl+C is for the run, which kills the server itself
    with open(folder / "server.log", "ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    passes = count(1)

    def watch(reached: str) -> None:
        if reached == step and next(passes) == times:
            os.kill(os.getpid(), signal.SIGKILL)

    steps.watch(watch)
    serve(ServeOptions(folder / "data", port=port, settings=SETTINGS))
