"""Network namespaces of Linux, with cables between them that can be cut.

    hub    the namespace of this process while it is inside `Namespaces`
    1..n   one per broker, with a cable to the hub and cables to some others

A cable is a pair of virtual interfaces with a network of its own, so that one cable is one link: while it is
down, packets are lost in silence, as with a real one. Needs root and iproute2; everything is removed at the
end, and nothing outside these namespaces is touched.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from contextlib import suppress
from itertools import count

from tocsin.errors import UsageError

__all__ = ["HUB", "Namespaces", "reason_against"]

HUB = 0
_CLONE_NEWNET = 0x40000000


def reason_against() -> str:
    """Why namespaces cannot be made here; empty if they can."""
    if shutil.which("ip") is None:
        return "there is no `ip` (Debian: iproute2)"
    if os.geteuid() != 0:
        return "network namespaces need root"
    name = f"tocsin{os.getpid()}try"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"network namespaces cannot be made: {tried.stderr.strip()}"
    _ip("netns", "del", name)
    return ""


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


class Namespaces:
    """A hub and n further namespaces; a context manager."""

    def __init__(self, many: int) -> None:
        if reason := reason_against():
            raise UsageError(reason, hint="run it as root on Linux, without --brokers elsewhere")
        self._names = [f"tocsin{os.getpid()}n{number}" for number in range(many + 1)]
        self._numbers = count(1)
        self._cables: dict[frozenset[int], tuple[int, str]] = {}
        self._own = -1  # the namespace that this process came from

    def __enter__(self) -> Namespaces:
        self._own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            for name in self._names:
                _ip("netns", "add", name)
                _ip("-n", name, "link", "set", "lo", "up")
            hub = os.open(f"/run/netns/{self._names[HUB]}", os.O_RDONLY)
            _enter(hub)
            os.close(hub)
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        _enter(self._own)
        self._remove()

    def _remove(self) -> None:
        os.close(self._own)
        for name in self._names:
            with suppress(subprocess.CalledProcessError):
                _ip("netns", "del", name)

    def connect(self, one: int, other: int) -> tuple[str, str]:
        """Lay a cable; the addresses of its two ends."""
        number = next(self._numbers)
        ends = f"t{number}a", f"t{number}b"
        addresses = f"10.{77 + number // 256}.{number % 256}.1", f"10.{77 + number // 256}.{number % 256}.2"
        names = self._names[one], self._names[other]
        _ip("-n", names[0], "link", "add", ends[0], "type", "veth", "peer", ends[1], "netns", names[1])
        for name, end, address in zip(names, ends, addresses, strict=True):
            _ip("-n", name, "addr", "add", f"{address}/30", "dev", end)
            _ip("-n", name, "link", "set", end, "up")
        self._cables[frozenset((one, other))] = one, ends[0]
        return addresses

    @property
    def cables(self) -> list[frozenset[int]]:
        """All that were laid."""
        return list(self._cables)

    def cut(self, cable: frozenset[int]) -> None:
        """From now on, packets are lost."""
        self._set(cable, "down")

    def mend(self, cable: frozenset[int]) -> None:
        """Packets arrive again."""
        self._set(cable, "up")

    def _set(self, cable: frozenset[int], state: str) -> None:
        where, end = self._cables[cable]
        _ip("-n", self._names[where], "link", "set", end, state)

    def command(self, number: int, *words: str) -> list[str]:
        """A command, to be run in a namespace."""
        return ["ip", "netns", "exec", self._names[number], *words]


def _enter(namespace: int) -> None:
    """This thread, and those that it starts from now on."""
    if ctypes.CDLL(None, use_errno=True).setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")
