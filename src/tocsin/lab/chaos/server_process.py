"""A server that ends itself: `python -m tocsin.lab.chaos.server_process FOLDER PORT STEP COUNT`.

It is killed when it reaches a step of `tocsin.server.steps` for the count-th time; with `-` it is not.
Snapshots are written often, so that their steps are reached.
"""

from __future__ import annotations

import os
import signal
import sys
from itertools import count
from pathlib import Path

from tocsin.server import steps
from tocsin.server.keeper import Settings
from tocsin.server.serve import ServeOptions, serve

SETTINGS = Settings(snapshot_commands=100, snapshot_at_close=10**9, look_every=0.2)


def main(folder: str, port: str, step: str, times: str) -> None:
    """Serve until the step, or until somebody else ends it."""
    passes = count(1)

    def watch(reached: str) -> None:
        if reached == step and next(passes) == int(times):
            os.kill(os.getpid(), signal.SIGKILL)

    steps.watch(watch)
    serve(ServeOptions(Path(folder), port=int(port), settings=SETTINGS))


if __name__ == "__main__":
    main(*sys.argv[1:])
