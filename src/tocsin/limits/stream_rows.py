"""The rows of two joined streams that are kept: chains by key, expiry, and a hard budget.

    arriving rows ─► append ─► pairs with the rows of the other side ─► settle: expire, score, drop
                                                               └─► or undo, if the step is rolled back

Budget: what rows, keys, counts of dropped rows and models take, in bytes; or a number of rows of both sides.
It is checked after every step. When it is exceeded, all rows are scored, and the lowest are dropped: a little
more than needed, so that one pass over n rows serves for n/10 arrivals. Rows that have expired go first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.limits._kernels.joining import (
    COUNT,
    DONE,
    ChainRows,
    JoinPairs,
    ProbeRows,
    join_chains,
)
from tocsin.limits._kernels.scoring import (
    BUCKET_BITS,
    BUCKETS,
    count_scores,
    keep_rows,
    spread_scores,
    weigh_scores,
)
from tocsin.limits.buffer import JoinBuffer
from tocsin.limits.join_keys import BYTES_OF_DROPPED, NEVER, DroppedRows, KeyCodes, key_numbers
from tocsin.limits.models.base import Arrivals, Doubles, KeptRows
from tocsin.limits.scores import Score
from tocsin.limits.stream_spec import StreamJoinSpec
from tocsin.model.columns import Index, Mask, Vector, longer
from tocsin.model.schema import Type

__all__ = ["ArrivingRows", "StreamRows"]

_CHUNK = 1 << 16  # rows scored at once
_SLACK = 10  # a pass drops a tenth more than it must
_LOG_SHARE = 20  # counts of dropped rows take a 20th of the budget
_MEMORY_SHARE, _BYTES_OF_COUNTED = 16, 64  # keys without rows take a 16th of the budget
_LEAST_LOG, _LOG_OF_ROWS = 64, 1 << 16
_ATTEMPTS, _MORE = 8, 32  # each attempt drops a 32nd more than the one before
_MODEL_SHARE = 16  # the tables of a side's model take at most a 16th of the budget
_EMPTY_BYTES = 4096  # of the objects themselves
_FINE = 1000  # the border may be off by a thousandth of the rows


class ArrivingRows(NamedTuple):
    """Rows of a batch of one side that have a key and pass a filter."""

    rows: Index  # numbers in the batch
    key: Index
    seq: Index
    time: Index
    weight: NDArray[np.int32]
    vectors: dict[str, Vector]


class StreamRows:
    """Rows of both sides under one budget."""

    def __init__(self, spec: StreamJoinSpec, score: Score | None) -> None:
        self.spec, self.score = spec, score
        self.budget = spec.budget
        if score is not None and self.budget is not None and not self.budget.rows:
            score.bound(self.budget.amount // _MODEL_SHARE)
        self.buffers: list[JoinBuffer | None] = [None, None]
        self.keys = KeyCodes(self._key_space())
        reach = spec.timing.reach(0), spec.timing.reach(1)
        self.dropped = DroppedRows(self._log_size(), reach, spec.timing.clock == "event")
        self.clock = -NEVER  # rows before this, minus their reach, have expired
        self._first = [0, 0]  # rows from here on are of this step
        self._since_purge = 0
        self.evicted = 0

    def _key_space(self) -> int:
        """For how many keys there is space at first: address space alone, as long as it is not used."""
        if self.budget is None or self.budget.amount < _LOG_OF_ROWS:
            return 64
        return 2 * self.budget.amount if self.budget.rows else self.budget.amount // _BYTES_OF_COUNTED

    def _log_size(self) -> int:
        if self.budget is None:
            return 0
        if self.budget.rows:
            return max(_LOG_OF_ROWS, self.budget.amount)
        return max(_LEAST_LOG, self.budget.amount // _LOG_SHARE // BYTES_OF_DROPPED)

    def open(self, side: int, columns: dict[str, Type]) -> JoinBuffer:
        """The buffer of a side, with these columns at least."""
        buffer = self.buffers[side]
        if buffer is None:
            space = 0 if self.budget is None or self.budget.rows else self.budget.amount
            buffer = self.buffers[side] = JoinBuffer(columns, space)
        for name, type in columns.items():
            if name not in buffer.columns:
                buffer.add_column(name, type)
        return buffer

    # -- a step ------------------------------------------------------------------------------------

    def append(self, side: int, new: ArrivingRows) -> None:
        """Rows of this step; `open` came before."""
        buffer = self.buffers[side]
        assert buffer is not None
        first, code = buffer.count, self.keys.put(new.key)
        buffer.append(new.rows, code, new.seq, new.time, new.weight, new.vectors)
        buffer.link(self.keys.arrays.heads[side], first)

    def pairs(self) -> tuple[Index, Index]:
        """All pairs with a row of this step: rows of side 0, and rows of side 1."""
        zero, one = self._look_up_new(0, self._first[1])
        two, three = self._look_up_new(1, NEVER)
        return np.concatenate([zero, three]), np.concatenate([one, two])

    def missed(self) -> int:
        """How many pairs the rows of this step have missed, because their partners were dropped."""
        if not self.dropped.count:
            return 0
        found = 0
        for side, buffer in enumerate(self.buffers):
            if buffer is not None:
                new = slice(self._first[side], buffer.count)
                found += self.missed_by(side, buffer.code[new], buffer.time[new])
        return found

    def missed_by(self, side: int, code: NDArray[np.int32], time: Index) -> int:
        """How many pairs rows of a side with these codes and times would have with dropped ones."""
        return self.dropped.missed(self._probes(side, code, time, self.keys.arrays.gone))

    def _probes(self, side: int, code: NDArray[np.int32], time: Index, heads: NDArray[np.int32]) -> ProbeRows:
        timing = self.spec.timing
        low, high = (timing.low, timing.high) if side == 0 else (-timing.high, -timing.low)
        return ProbeRows(code, time, heads[1 - side], low, high)

    def _look_up_new(self, side: int, limit: int) -> tuple[Index, Index]:
        """Pairs of this step's rows of a side, first, with the rows of the other."""
        mine, other, first = self.buffers[side], self.buffers[1 - side], self._first[side]
        none = np.empty(0, np.int64)
        if mine is None or other is None or mine.count == first or not other.count:
            return none, none
        new = slice(first, mine.count)
        return self.look_up(side, mine.code[new], mine.time[new], limit, first)

    def look_up(
        self, side: int, code: NDArray[np.int32], time: Index, limit: int = NEVER, number: int = 0
    ) -> tuple[Index, Index]:
        """Pairs of rows of a side, by code and time and numbered from `number`, with rows of the other."""
        other, timing = self.buffers[1 - side], self.spec.timing
        assert other is not None
        probes = self._probes(side, code, time, self.keys.arrays.heads)
        reach = timing.reach(1 - side)
        oldest = self.clock - reach if timing.clock == "event" and reach < NEVER else -(2**63)
        rows = ChainRows(
            other.next, other.time, self._first[1 - side], oldest, limit, timing.clock == "arrival"
        )
        size = 1024 + 2 * len(code)
        out = JoinPairs(np.empty(size, np.int32), np.empty(size, np.int32), np.zeros(2, np.int64))
        join_chains(probes, rows, out)
        while out.progress[DONE] < len(code):
            size = 2 * len(out.first)
            out = JoinPairs(longer(out.first, size), longer(out.second, size), out.progress)
            join_chains(probes, rows, out)
        count = int(out.progress[COUNT])
        first = out.first[:count].astype(np.int64) + number
        return first, out.second[:count].astype(np.int64)

    def undo(self) -> None:
        """Remove the rows of this step."""
        for side, buffer in enumerate(self.buffers):
            if buffer is not None:
                buffer.cut(self._first[side])
        self._link_again()

    def settle(self, clock: int, now: int) -> None:
        """The step is final: advance the clock, let the score see its rows, drop what must be dropped."""
        appended = self._observe(now)
        self.advance(clock)
        self._since_purge += appended
        if self.score is not None:
            self._shrink(now, appended)
        if self._since_purge > max(1024, len(self) // 4):
            self._purge()
        self._first = [0 if buffer is None else buffer.count for buffer in self.buffers]

    def advance(self, clock: int) -> None:
        """Rows that would have expired by now are not counted as dropped any more."""
        self.clock = max(self.clock, clock)
        self.dropped.expire(self.keys, self.clock)

    # -- dropping rows -----------------------------------------------------------------------------

    def _observe(self, now: int) -> int:
        """Show the rows of this step to the score; how many there are."""
        appended = 0
        for side, buffer in enumerate(self.buffers):
            if buffer is None or buffer.count == self._first[side]:
                continue
            new = slice(self._first[side], buffer.count)
            appended += new.stop - new.start
            if self.score is not None:
                codes = buffer.code[new].astype(np.int64)
                at = np.minimum(np.maximum.accumulate(buffer.time[new]), now).astype(np.float64)
                with np.errstate(all="ignore"):  # keys may be infinite
                    self.score.seen(side, Arrivals(codes, self._numbers(side, codes), at))
        return appended

    def _numbers(self, side: int, codes: Index) -> Doubles | None:
        return key_numbers(self.spec.keys[side], self.keys.arrays.key[codes])

    def _purge(self) -> None:
        """Remove what has expired, if it is much."""
        self._since_purge = 0
        alive = [self._expires(side) >= self.clock for side in range(2)]
        expired = sum(int(np.count_nonzero(~mask)) for mask in alive)
        if expired > len(self) // 4:
            self._remove(alive)

    def _expires(self, side: int) -> Index:
        """When each row of a side expires."""
        buffer, reach = self.buffers[side], self.spec.timing.reach(side)
        if buffer is None:
            return np.empty(0, np.int64)
        if reach >= NEVER:
            return np.full(buffer.count, NEVER, np.int64)
        return buffer.time[: buffer.count] + reach

    def _shrink(self, now: int, appended: int) -> None:
        """Drop the rows of the lowest scores until the budget holds."""
        assert self.budget is not None
        if self.keys.is_sparse and self.used() > self.budget.amount:
            self._link_again()
        for attempt in range(_ATTEMPTS):
            used, amount = self.used(), self.budget.amount
            if used <= amount or not len(self):
                return
            arrived = appended * (1 if self.budget.rows else used // len(self))
            slack = max(0, amount // _SLACK - arrived)
            slack += attempt * amount // _MORE  # counts of dropped rows take space too
            excess = used - amount + slack
            if attempt < _ATTEMPTS // 2 and not self.budget.rows:
                excess = self._of_rows(excess)
            self._drop(excess, now)

    def _of_rows(self, excess: int) -> int:
        """How many bytes of rows to drop for so many in all: if it is much, keys leave with them."""
        rows = sum(buffer.nbytes for buffer in self.buffers if buffer is not None)
        return excess if 2 * excess < rows else excess * rows // (rows + self.keys.nbytes)

    def _drop(self, amount: int, now: int) -> None:
        """Drop the rows of the lowest scores, of this size in all."""
        kept = len(self)
        sizes = [self._sizes(side) for side in range(2)]
        with np.errstate(all="ignore"):
            for side in range(2):
                self._score(side, now, kept, sizes[side])
        border, shift, rest = self._border(sizes, amount)
        keep = []
        for side, buffer in enumerate(self.buffers):
            count = 0 if buffer is None else buffer.count
            mask = np.ones(count, np.bool_)
            if buffer is not None:
                bits = buffer.score[:count].view(np.int64)
                rest = int(keep_rows(bits, *sizes[side], border, shift, rest, mask))
                self._log(side, buffer, ~mask)
            keep.append(mask)
        self._remove(keep)

    def _sizes(self, side: int) -> tuple[int, NDArray[np.int32]]:
        """What each row of a side counts for: a fixed size, and more by row."""
        assert self.budget is not None
        buffer = self.buffers[side]
        if buffer is None or self.budget.rows:
            return 1, np.empty(0, np.int32)
        return buffer.row_bytes, buffer.text_bytes()

    def _score(self, side: int, now: int, kept: int, sizes: tuple[int, NDArray[np.int32]]) -> None:
        """Write the score of every row of a side."""
        buffer, score = self.buffers[side], self.score
        if buffer is None or not buffer.count:
            return
        assert score is not None
        count, reach = buffer.count, self.spec.timing.reach(side)
        if score.per_key and reach >= NEVER:
            self._score_keys(side, now, kept)
        else:
            for begin in range(0, count, _CHUNK):
                part = slice(begin, min(count, begin + _CHUNK))
                codes, at = buffer.code[part].astype(np.int64), buffer.time[part].astype(np.float64)
                left = at + float(reach) - float(self.clock) if reach < NEVER else np.full(len(at), np.inf)
                values = self._numbers(side, codes) if score.by_value else None
                rows = KeptRows(codes, values, at, left)
                buffer.score[part] = score(side, rows, float(now), kept)
        if score.is_benefit:
            weigh_scores(buffer.weight[:count], *sizes, buffer.score[:count])

    def _score_keys(self, side: int, now: int, kept: int) -> None:
        """The same where all rows of a key have one score."""
        buffer, score = self.buffers[side], self.score
        assert buffer is not None and score is not None
        by_code = np.zeros(self.keys.used)
        for begin in range(0, len(by_code), _CHUNK):
            codes = np.arange(begin, min(len(by_code), begin + _CHUNK))
            blank = np.zeros(len(codes))
            values = self._numbers(side, codes) if score.by_value else None
            rows = KeptRows(codes, values, blank, blank + np.inf)
            by_code[codes] = score(side, rows, float(now), kept)
        spread_scores(by_code, buffer.code[: buffer.count], buffer.score[: buffer.count])

    def _border(self, sizes: list[tuple[int, NDArray[np.int32]]], amount: int) -> tuple[int, int, int]:
        """The leading bits of the score up to which rows are dropped, and the size to drop of those on it."""
        prefix, shift, rest = 0, 64 - BUCKET_BITS, amount
        fine = len(self) // _FINE * min(fixed for fixed, _ in sizes)
        while True:
            histogram = np.zeros(BUCKETS, np.int64)
            for side, buffer in enumerate(self.buffers):
                if buffer is not None and buffer.count:
                    bits = buffer.score[: buffer.count].view(np.int64)
                    count_scores(bits, *sizes[side], prefix, shift, histogram)
            below = np.cumsum(histogram)
            bucket = min(int(np.searchsorted(below, rest)), BUCKETS - 1)
            rest -= int(below[bucket] - histogram[bucket])
            prefix = prefix << BUCKET_BITS | bucket
            if shift < BUCKET_BITS or histogram[bucket] <= max(rest, fine):
                return prefix, shift, rest
            shift -= BUCKET_BITS

    def _log(self, side: int, buffer: JoinBuffer, dropped: Mask) -> None:
        """Count dropped rows that have not expired."""
        rows, reach = np.flatnonzero(dropped), self.spec.timing.reach(side)
        rows = rows[buffer.time[rows] + reach >= self.clock]
        self.evicted += len(rows)
        self.dropped.add(self.keys, side, buffer.code[rows], buffer.time[rows], buffer.seq[rows])

    def _remove(self, keep: list[Mask]) -> None:
        for buffer, mask in zip(self.buffers, keep, strict=True):
            if buffer is not None and not mask.all():
                buffer.keep(mask)
        self._link_again()

    def _link_again(self) -> None:
        """Make all chains again, and remove keys without rows."""
        self.keys.unlink()
        for side, buffer in enumerate(self.buffers):
            if buffer is not None:
                buffer.link(self.keys.arrays.heads[side])
        dead = self.keys.remove_dead(self._remembered())
        if self.score is not None and len(dead):
            self.score.discard(dead.astype(np.int64))
        if self.keys.is_sparse:
            self._renumber()

    def _renumber(self) -> None:
        """Give keys the lowest codes: what is kept by code is as long as the highest one."""
        codes = np.full(self.keys.used, -1, np.int32)
        before = self.keys.renumber()
        codes[before] = np.arange(len(before), dtype=np.int32)
        for buffer in self.buffers:
            if buffer is not None:
                buffer.code[: buffer.count] = codes[buffer.code[: buffer.count]]
        self.dropped.renumber(codes)
        if self.score is not None:
            self.score.renumber(before)

    def _remembered(self) -> int:
        """How many keys without rows may stay, as models count them: a key that comes again was known."""
        if self.score is None or self.budget is None:
            return 0
        if self.budget.rows:
            return max(_LOG_OF_ROWS, self.budget.amount)
        return self.budget.amount // _MEMORY_SHARE // _BYTES_OF_COUNTED

    # -- sizes -------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return sum(buffer.count for buffer in self.buffers if buffer is not None)

    @property
    def nbytes(self) -> int:
        """Bytes of rows, keys, counts and models."""
        rows = sum(buffer.nbytes for buffer in self.buffers if buffer is not None)
        models = 0 if self.score is None else self.score.nbytes
        return rows + self.keys.nbytes + self.dropped.nbytes + models + _EMPTY_BYTES

    def used(self) -> int:
        """What the budget is compared with."""
        return len(self) if self.budget is not None and self.budget.rows else self.nbytes

    def _check(self) -> None:
        self.keys._check()
        self.dropped._check(self.keys)
        if self.score is not None:
            self.score._check()
        if self.budget is not None and self.budget.rows:
            assert len(self) <= self.budget.amount
        for side, buffer in enumerate(self.buffers):
            if buffer is None:
                continue
            buffer._check()
            heads, seen = self.keys.arrays.heads[side], 0
            for code in self.keys.alive().tolist():
                row = int(heads[code])
                while row >= 0:
                    assert buffer.code[row] == code and buffer.next[row] < row
                    seen, row = seen + 1, int(buffer.next[row])
            assert seen == buffer.count
