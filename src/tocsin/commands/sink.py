"""Pairs (event, subscription) to a file: JSON lines, CSV or Parquet, by the end of its name.

The file is written under another name and takes its own when it is whole; after an error there is none.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

from tocsin.commands.data import FORMATS, reading
from tocsin.errors import UsageError
from tocsin.model.columns import Index

__all__ = ["PairSink"]

HELD = 200_000  # pairs that are held before they are written: few large Parquet row groups
_SCHEMA = pa.schema([("event", pa.int64()), ("subscription", pa.int64())])


class PairSink:
    """A context: `write` pairs while it is open."""

    def __init__(self, path: Path, inputs: Iterable[Path] = ()) -> None:
        if path.suffix not in FORMATS:
            raise UsageError(
                f"{path} is of no format that is written", hint=f"files end in {', '.join(FORMATS)}"
            )
        if not path.parent.is_dir() or path.is_dir():
            raise UsageError(f"{path} cannot be written", hint="name a file in a folder that is there")
        if any(path.resolve() == file.resolve() for file in inputs):
            raise UsageError(f"{path} is read: it cannot be written too", hint="choose another --output")
        self.path = path
        self._part = path.with_name(f".{path.name}.part")
        self._held: list[tuple[Index, Index]] = []
        self._count = 0
        self._writer: Any = None

    def __enter__(self) -> Self:
        with reading(self.path):
            if self.path.suffix == ".parquet":
                self._writer = parquet.ParquetWriter(self._part, _SCHEMA)
            else:
                self._writer = self._part.open("w", encoding="utf-8", newline="\n")
                self._writer.write("event,subscription\n" if self.path.suffix == ".csv" else "")
        return self

    def write(self, event: Index, subscription: Index) -> None:
        """Add pairs, in order."""
        self._held.append((event, subscription))
        self._count += len(event)
        if self._count >= HELD:
            self._flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._flush()
        self._writer.close()
        if kind is None:
            self._part.replace(self.path)
        else:
            self._part.unlink(missing_ok=True)

    def _flush(self) -> None:
        if not self._count:
            return
        event, subscription = (np.concatenate([pair[i] for pair in self._held]) for i in (0, 1))
        self._held, self._count = [], 0
        pairs = zip(event.tolist(), subscription.tolist(), strict=True)
        if self.path.suffix == ".parquet":
            self._writer.write_table(pa.table([event, subscription], schema=_SCHEMA))
        elif self.path.suffix == ".csv":
            self._writer.writelines(f"{e},{s}\n" for e, s in pairs)
        else:
            self._writer.writelines(f'{{"event": {e}, "subscription": {s}}}\n' for e, s in pairs)
