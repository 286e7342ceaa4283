"""Whose child a process is: the Java process that a Spark worker belongs to, as /proc tells."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

__all__ = ["Owner", "java_of", "lives", "owner"]


class Owner(NamedTuple):
    """A process. Its number may be given again after its end; number and time of start are not."""

    pid: int
    started: int  # in ticks since the machine was started


def owner(pid: int) -> Owner | None:
    """A process that is there; None where /proc does not tell."""
    facts = _facts(pid)
    return Owner(pid, facts[2]) if facts is not None else None


def java_of(pid: int) -> Owner | None:
    """The nearest Java process above another."""
    while (facts := _facts(pid)) is not None:
        if facts[0] == "java":
            return Owner(pid, facts[2])
        pid = facts[1]
    return None


def lives(process: Owner) -> bool:
    """Whether it has not ended."""
    return owner(process.pid) == process


def resident(pid: int | None = None) -> int:
    """The bytes of memory that a process has; 0 where /proc does not tell."""
    try:
        pages = int(Path(f"/proc/{pid or os.getpid()}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGESIZE")


def _facts(pid: int) -> tuple[str, int, int] | None:
    """(name, parent, time of start); None for one that has ended, waited for or not."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    return None if fields[0] in "ZX" else (name, int(fields[1]), int(fields[19]))
