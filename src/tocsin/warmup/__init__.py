"""Compile every kernel that the product uses, once, on all cores.

Kernels are compiled when they are first needed, for the types they are needed with. `run` has worker
processes rehearse small workloads (`scenarios.py`) that need all of them; what is compiled stays in the cache
(`tocsin.compiled`), and later processes only load it. `make setup` and `tocsin warmup` call it.

    queue of rehearsals ─► worker ─► cache        workers that need the same kernel wait for each other
                        ─► worker ─┘

>>> "aggregates" in rehearsals()
True
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import NamedTuple

from tocsin.compiled import cache
from tocsin.errors import TocsinError

__all__ = ["WarmUp", "rehearsals", "run"]

Progress = Callable[[int, int, str, int], None]


class WarmUp(NamedTuple):
    """What a warm-up did."""

    kernels: int  # compiled, each for one list of types; 0 if all were there
    seconds: float
    folder: Path  # the cache


def rehearsals() -> tuple[str, ...]:
    """The names of all rehearsals, the longest first."""
    from tocsin.warmup.scenarios import REHEARSALS

    return tuple(REHEARSALS)


def run(
    progress: Progress | None = None, *, workers: int | None = None, only: Sequence[str] | None = None
) -> WarmUp:
    """Compile what is not compiled yet.

    `progress` is called with the number of rehearsals done, that of all, the name of the last one, and the
    number of kernels compiled so far.
    `workers` is the number of processes, by default one per core; `only` names some of the rehearsals.
    """
    names = rehearsals() if only is None else tuple(only)
    unknown = sorted(set(names) - set(rehearsals()))
    if unknown:
        raise TocsinError(f"there is no rehearsal {unknown[0]!r}", hint=f"one of: {', '.join(rehearsals())}")
    begun, queue = perf_counter(), SimpleQueue[str]()
    for name in names:
        queue.put(name)
    done: list[int] = []  # the number of kernels that each rehearsal compiled

    def count(name: str, compiled: int) -> None:
        done.append(compiled)
        if progress is not None:
            progress(len(done), len(names), name, sum(done))

    processes = max(1, min(workers or _cores(), len(names)))
    with ThreadPoolExecutor(processes) as threads:
        list(threads.map(lambda _: _work(queue, count), range(processes)))
    return WarmUp(sum(done), perf_counter() - begun, cache.roots()[0])


def _cores() -> int:
    available = getattr(os, "sched_getaffinity", None)
    return len(available(0)) if available is not None else os.cpu_count() or 1


def _work(queue: SimpleQueue[str], count: Callable[[str, int], None]) -> None:
    """One worker process: give it rehearsals until there are none; count the kernels that each compiled."""
    environment = {**os.environ, "TOCSIN_JIT": "always", "PYTHONPATH": _python_path()}
    environment.pop("NUMBA_DISABLE_JIT", None)
    worker = subprocess.Popen(
        [sys.executable, "-m", "tocsin.warmup"],
        env=environment,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert worker.stdin is not None and worker.stdout is not None and worker.stderr is not None
    with worker:
        while True:
            try:
                name = queue.get_nowait()
            except Empty:
                return
            try:
                print(name, file=worker.stdin, flush=True)
                answer = worker.stdout.readline()
            except OSError:
                answer = ""
            if not answer:
                said = worker.stderr.read().strip().splitlines()
                raise TocsinError(f"the rehearsal {name!r} failed: {said[-1] if said else 'no message'}")
            count(name, int(answer))


def _python_path() -> str:
    """So that workers import this very package."""
    here = str(Path(__file__).parents[2])
    return os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
