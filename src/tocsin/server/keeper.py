"""Housekeeping of a core beside its writer: snapshots, and how long deltas are kept.

A snapshot is due when replaying the log would take long: by its bytes, its commands, and the processor time
that they took when they were applied. The writer stops for the capture alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock, Thread
from time import perf_counter
from typing import TYPE_CHECKING

from tocsin.server.snapshots import write
from tocsin.server.steps import reached

if TYPE_CHECKING:
    from tocsin.server.core import Core

__all__ = ["Keeper", "Settings"]

_LOG = logging.getLogger(__name__)
_SNAPSHOTS_SHARE = 5.0


@dataclass(frozen=True, slots=True)
class Settings:
    """When to write a snapshot, and how many bytes of deltas to keep for followers that resume."""

    snapshot_bytes: int = 64 << 20
    snapshot_commands: int = 50_000
    snapshot_seconds: float = 10.0  # that commands took; but at least five times what a snapshot takes
    snapshot_at_close: int = 1000  # commands
    delta_bytes: int = 1 << 30
    look_every: float = 1.0  # seconds


class Keeper:
    """The thread that keeps house."""

    def __init__(self, core: Core, settings: Settings) -> None:
        self.settings = settings
        self.snapshot_bytes = _bytes_in(core.folder)
        self._saved_seconds, self._took = 0.0, 0.0
        self._core = core
        self._closing = Event()
        self._lock = Lock()  # one snapshot at a time
        self._thread = Thread(target=self._run, name=f"tocsin-keeper-{core.folder.name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop; with a last snapshot, if a restart would have much to replay."""
        self._closing.set()
        self._thread.join()
        log = self._core.log
        if self._core.failed is None and log.position - log.base > self.settings.snapshot_at_close:
            self._try(self.snapshot)

    def snapshot(self) -> None:
        """Write a snapshot now."""
        with self._lock:
            start = perf_counter()
            captured, applied = self._core.read(lambda _: (self._core.capture(), self._core.applied_seconds))
            stopped = perf_counter() - start
            try:
                write(captured, self._core.folder)
            except BaseException:
                for _, segment in captured.new:
                    segment.file = None
                raise
            self.snapshot_bytes = _bytes_in(self._core.folder)
            self._saved_seconds, self._took = applied, perf_counter() - start
            reached("snapshot.drop")
            self._core.log.drop_commands(captured.manifest.position)
            _LOG.info(
                "%s: snapshot at position %d in %.1f s, changes waited for %.2f s",
                self._core.folder, captured.manifest.position, perf_counter() - start, stopped,
            )  # fmt: skip

    def _run(self) -> None:
        while not self._closing.wait(self.settings.look_every):
            if self._core.failed is None:
                self._try(self._look)

    def _look(self) -> None:
        log, settings = self._core.log, self.settings
        if (
            log.command_bytes > settings.snapshot_bytes
            or log.position - log.base > settings.snapshot_commands
            or self._core.applied_seconds - self._saved_seconds
            > max(settings.snapshot_seconds, _SNAPSHOTS_SHARE * self._took)
        ):
            self.snapshot()
        log.trim_blocks(settings.delta_bytes)

    def _try(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception:  # noqa: BLE001 - the log goes on without: the next look tries again
            _LOG.exception("%s: housekeeping failed", self._core.folder)


def _bytes_in(folder: Path) -> int:
    """Bytes of the last snapshot."""
    files = folder / "snapshot"
    return sum(file.stat().st_size for file in files.iterdir()) if files.is_dir() else 0
