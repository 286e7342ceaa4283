"""One engine with a durable log, and the thread that writes both: group commit and recovery.

    submit ─► queue ─► writer thread:  apply each task of the group to the engine
                                       commit their commands and deltas: one transaction, one sync
                                       then settle the tasks, and hand the blocks to followers

No task is settled and no delta leaves before the commit, and reads go through the same queue. So nobody can
see a state that a crash takes back: whoever has seen a position finds it after a restart. While one group is
being synced, the next one gathers; under load a sync is shared by all that waited for it.

If a commit fails (the disk is full), the engine is ahead of the log. The core then rejects everything: the
process must be started again.

>>> from tempfile import TemporaryDirectory
>>> from tocsin.server.commands import ApplyChanges, Define, Subscribe
>>> with TemporaryDirectory() as folder:
...     with Core(Path(folder)) as core:
...         _ = core.call(Define("CREATE STREAM hits"))
...         _ = core.call(Subscribe(0, "SELECT * FROM hits WHERE n > 1"))
...         done = core.call(ApplyChanges("hits", "object", b'{"n": 5}'))
...     with Core(Path(folder)) as core:
...         block, = core.log.blocks(0)
...         done.position, block.position, block.deltas([0])
(3, 3, b'[{"seq":1,"subscription":1,"sign":1,"row":{"n":5},"event":true}]')
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from time import perf_counter, thread_time
from typing import Any, Self

import msgspec

from tocsin.engine import Engine
from tocsin.errors import TocsinError
from tocsin.model.delta import Deltas
from tocsin.server.activity import Activity
from tocsin.server.apply import Applier
from tocsin.server.blocks import Block
from tocsin.server.commands import ApplyChanges, Command, Tick, decode, encode
from tocsin.server.keeper import Keeper, Settings
from tocsin.server.log import Key, Log, LogError, Record
from tocsin.server.snapshots import Captured, capture, read_snapshot, restore
from tocsin.server.steps import reached

__all__ = ["Core", "Done", "Task"]

MOST_IN_GROUP = 256
TICK = 0.25  # seconds between looks at what is due by the clock
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOG = logging.getLogger(__name__)


class Done(msgspec.Struct, omit_defaults=True):
    """What became of a command: its position, and what it has to say."""

    position: int
    seq: int
    result: Any = None


class Task:
    """A command to apply, or a function of the engine to call; `settle` receives the task when it is done."""

    __slots__ = ("command", "error", "key", "position", "read", "result", "settle", "started")

    def __init__(
        self,
        command: Command | None,
        read: Callable[[Engine], Any] | None,
        settle: Callable[[Task], None],
        key: tuple[str, bytes] | None = None,
    ) -> None:
        self.command, self.read, self.settle, self.key = command, read, settle, key
        self.result: Any = None
        self.error: BaseException | None = None
        self.position = 0  # what the task has seen
        self.started = perf_counter()


class Core:
    """An engine behind a log. `on_group` receives settled tasks and new blocks, in the writer thread.

    Without it, tasks are settled there one by one.
    """

    def __init__(
        self,
        folder: Path,
        *,
        on_group: Callable[[list[Task], list[Block]], None] | None = None,
        clock: Callable[[], datetime] | None = None,
        settings: Settings | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.wall = clock or (lambda: datetime.now(UTC))
        self._now = _EPOCH
        self.log = Log(folder / "log.sqlite")
        self.engine = Engine(clock=lambda: self._now)
        self._emitted: list[Deltas] = []
        self.engine.on_delta(self._emitted.append)
        self.applier = Applier(self.engine)
        self.activity = Activity()
        self.counters = Counters()
        self._on_group = on_group or _settle_all
        self._queue: SimpleQueue[Task | None] = SimpleQueue()
        self.failed: BaseException | None = None
        self._ticked = 0.0
        self.applied_seconds = 0.0  # of the processor, for commands that were applied or replayed
        self._is_closed = False
        self.position = self._recover()
        self._emitted.clear()
        self._thread = Thread(target=self._run, name=f"tocsin-writer-{folder.name}", daemon=True)
        self._thread.start()
        self.keeper = Keeper(self, settings or Settings())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def subscription_count(self) -> int:
        """How many subscriptions there are, paused ones too."""
        return self.engine.subscription_count + len(self.applier.paused)

    @property
    def cost_us(self) -> float:
        """What a changed row costs, in microseconds of the engine."""
        return self.counters.cost_us

    @property
    def stored_bytes(self) -> int:
        """Bytes of the log and of the last snapshot."""
        return self.log.command_bytes + self.log.block_bytes + self.keeper.snapshot_bytes

    @property
    def queued(self) -> int:
        """Tasks that wait."""
        return self._queue.qsize()

    @property
    def epoch(self) -> str:
        return self.log.epoch

    def token(self, position: int | None = None) -> str:
        """A resume token: all up to the position is known."""
        return f"{self.epoch}-{self.log.position if position is None else position}"

    def submit(self, task: Task) -> None:
        """Queue a task."""
        if self._is_closed:
            task.error = LogError("the server stops", hint="send it again when it is back")
            task.settle(task)
        else:
            self._queue.put(task)

    def call(self, command: Command, key: tuple[str, bytes] | None = None) -> Done:
        """Apply a command and wait until it is durable."""
        return self._wait(Task(command, None, _set_future, key))

    def read(self, function: Callable[[Engine], Any]) -> Any:
        """Call a function with the engine between two commands."""
        return self._wait(Task(None, function, _set_future))

    def close(self) -> None:
        """Apply what is queued, then stop."""
        if not self._is_closed:
            self.keeper.close()
            self._is_closed = True
            self._queue.put(None)
            self._thread.join()
            self.log.close()

    # -- the writer thread -------------------------------------------------------------------------

    def _run(self) -> None:
        is_last = False
        while not is_last:
            group = self._next_group()
            is_last = group[-1:] == [None]
            tasks = [task for task in group if task is not None]
            if self.failed is None:
                self._do_group(tasks)
            else:
                self._fail(tasks)

    def _next_group(self) -> list[Task | None]:
        try:
            group = [self._queue.get(timeout=TICK)]
        except Empty:
            return []
        while group[-1] is not None and len(group) < MOST_IN_GROUP:
            try:
                group.append(self._queue.get_nowait())
            except Empty:
                break
        return group

    def _do_group(self, tasks: list[Task]) -> None:
        records: list[Record] = []
        blocks: list[Block] = []
        keys: list[Key] = []
        self._seconds: list[float] = []  # that the command of each block took
        if perf_counter() - self._ticked >= TICK or not tasks:
            self._ticked = perf_counter()
            self._do(Task(Tick(), None, _ignore), records, blocks, keys)
        for task in tasks:
            self._do(task, records, blocks, keys)
        try:
            if records:
                reached("commit.begin")
                start = perf_counter()
                self.log.commit(records, blocks, keys)
                self.counters.committed(sum(map(len, blocks)), perf_counter() - start)
                reached("commit.end")
        except Exception as error:  # noqa: BLE001 - whatever it was: the engine is ahead of the log
            _LOG.critical("the log cannot be written: %s", error)
            self.failed = error
            self._fail(tasks)
            return
        for block, seconds in zip(blocks, self._seconds, strict=True):
            self.activity.count(block.subscription, block.at, int(1e9 * seconds))
        self._on_group(tasks, blocks)

    def snapshot(self) -> None:
        """Write a snapshot of the state now, and drop the commands before it from the log."""
        self.keeper.snapshot()

    def capture(self) -> Captured:
        """The state now; for the writer thread."""
        at = (self._now - _EPOCH) // timedelta(microseconds=1)
        return capture(self.applier, self.activity, self.folder, self.epoch, self.position, at)

    def _do(self, task: Task, records: list[Record], blocks: list[Block], keys: list[Key]) -> None:
        """Apply one task to the engine and note what the log has to store."""
        self._now, start = max(self._now, self.wall()), perf_counter()
        command, position = task.command, self.position + 1
        task.position = self.position
        try:
            if command is None:
                assert task.read is not None
                self.applier.begin_read()
                task.result = task.read(self.engine)
                command = self.applier.refreshed() if self._emitted else None
            else:
                task.result = self._apply(command)
        except TocsinError as error:
            task.error = error
            command = Tick() if self._emitted else None
        except Exception as error:  # noqa: BLE001 - a defect: reported, and nothing was applied
            _LOG.exception("a task failed")
            task.error = error
            command = Tick() if self._emitted else None
        if command is None or (isinstance(command, Tick) and not self._emitted):
            return
        at = (self._now - _EPOCH) // timedelta(microseconds=1)
        records.append(Record(position, at, encode(command)))
        deltas, event = self.applier.emitted(self._emitted)
        self._emitted.clear()
        if len(deltas):
            blocks.append(Block.of(position, at, self.applier.cause(command), deltas, event))
            self._seconds.append(perf_counter() - start)
        self.position = task.position = position
        if task.command is not None and task.error is None:
            task.result = Done(position, self.engine.last_seq, task.result)
            if task.key is not None:
                keys.append(Key(task.key[0], task.key[1], msgspec.json.encode(task.result)))

    def _apply(self, command: Command) -> Any:
        start, used = perf_counter(), thread_time()
        try:
            result = self.applier.apply(command)
        finally:
            self.applied_seconds += thread_time() - used
        rows = result["applied"] if isinstance(command, ApplyChanges) else 0
        self.counters.applied(rows, perf_counter() - start)
        return result

    def _fail(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            task.error = LogError(f"the log cannot be written: {self.failed}", hint="see the server's log")
        self._on_group(list(tasks), [])

    # -- recovery ----------------------------------------------------------------------------------

    def _recover(self) -> int:
        """Load the snapshot and replay the log; returns its last position.

        Deltas of replayed commands are in the log already.
        """
        if self.log.torn:
            _LOG.warning("%s: cut %d bytes of an incomplete commit", self.log.path, self.log.torn)
        start, found = perf_counter(), read_snapshot(self.folder)
        position = 0 if found is None else found.position
        if self.log.base > position or (found is not None and found.epoch != self.log.epoch):
            raise LogError(
                f"the log {self.log.path} begins after position {self.log.base}; its snapshot is missing",
                hint="restore the whole folder from a backup",
            )
        if found is not None:
            self._now = _EPOCH + timedelta(microseconds=found.at)
            restore(found, self.folder, self.applier)
            self.activity = Activity.decode(found.activity)
        used = thread_time()
        for record in self.log.records(position):
            self._replay(record)
        self.applied_seconds = thread_time() - used
        self._count_since(position)
        if self.log.position:
            seconds = perf_counter() - start
            _LOG.info("%s: at position %d after %.1f s", self.folder, self.log.position, seconds)
        if position > self.log.position:
            raise LogError(
                f"the log {self.log.path} ends before its snapshot", hint="restore the whole folder"
            )
        return self.log.position

    def _replay(self, record: Record) -> None:
        self._now = _EPOCH + timedelta(microseconds=record.at)
        try:
            self.applier.apply(decode(record.body))
        except TocsinError as error:
            raise LogError(
                f"record {record.position} of {self.log.path} cannot be replayed: {error.fact}",
                hint="was it written by another version?",
            ) from error
        self._emitted.clear()
        self.applier.own()

    def _count_since(self, position: int) -> None:
        while blocks := self.log.blocks(position):
            for block in blocks:
                self.activity.count(block.subscription, block.at)
            position = blocks[-1].position

    # -- inside ------------------------------------------------------------------------------------

    def _wait(self, task: Task) -> Any:
        future: Future[Any] = Future()
        task.settle = lambda done: _set_future(done, future)
        self.submit(task)
        return future.result()


def _settle_all(tasks: list[Task], blocks: list[Block]) -> None:
    for task in tasks:
        task.settle(task)


def _set_future(task: Task, future: Future[Any] | None = None) -> None:
    if future is None:
        return
    if task.error is None:
        future.set_result(task.result)
    else:
        future.set_exception(task.error)


def _ignore(task: Task) -> None:
    """For tasks that nobody waits for."""


# -- counters ------------------------------------------------------------------------------------------


_WEIGHT = 0.05  # of the last change in the average cost


@dataclass(slots=True)
class Counters:
    """Since the core was opened; `cost_us` is a running average of the engine's time per changed row."""

    changes: int = 0
    deltas: int = 0
    commits: int = 0
    apply_seconds: float = 0.0
    commit_seconds: float = 0.0
    cost_us: float = 0.0

    def applied(self, rows: int, seconds: float) -> None:
        """Changes of so many rows took so long."""
        self.changes += rows
        self.apply_seconds += seconds
        if rows:
            cost = 1e6 * seconds / rows
            weight = min(1.0, _WEIGHT * rows) if self.cost_us else 1.0
            self.cost_us += weight * (cost - self.cost_us)

    def committed(self, deltas: int, seconds: float) -> None:
        """A group is on disk."""
        self.commits += 1
        self.deltas += deltas
        self.commit_seconds += seconds
