"""`-` in place of a file: stdin is read, and its first bytes say in which format it is.

    events          JSON lines are read as they come; an array, CSV or Parquet to the end, then matched
    subscriptions   SQL, JSON lines, CSV or Parquet, to the end

>>> sniff(b'{"n": 1}'), sniff(b"n,page"), sniff(b"SELECT a, b", sql=True), sniff(b"id,sql\\n1,", sql=True)
('.jsonl', '.csv', '.sql', '.csv')
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tocsin.commands.events import EventBatch, parse_lines, read_events
from tocsin.errors import TocsinError, UsageError
from tocsin.model.schema import Stream, Table

__all__ = ["STDIN", "check_one_stdin", "read_stdin", "sniff", "spooled"]

STDIN = Path("-")
_BLOCK = 1 << 20
_HEADER = re.compile(rb"[\s\w,\"]*\b(sql|predicates)\b[\w,\" ]*\r?(\n|$)", re.IGNORECASE)


def _stdin() -> Any:
    return sys.stdin.buffer


def sniff(head: bytes, *, sql: bool = False) -> str:
    """The format of a text, as the end of a file's name; `sql` if it may be SQL."""
    head = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if head.startswith(b"PAR1"):
        return ".parquet"
    if head.startswith((b"{", b"[")):
        return ".jsonl"
    return ".csv" if not sql or (_HEADER.match(head) and b"," in head.split(b"\n", 1)[0]) else ".sql"


def check_one_stdin(*files: object) -> None:
    """Raise if more than one input is stdin."""
    if sum(file == STDIN for file in files) > 1:
        raise UsageError("only one input can be - (stdin)", hint="name a file for the others")


def read_stdin(relation: Table | Stream) -> Iterator[EventBatch]:
    """The events of stdin, in batches: of JSON lines, whatever has come so far."""
    source = _stdin()
    head = source.read1(_BLOCK)
    while head and not head.strip():
        head += source.read1(_BLOCK)
    plain = head.removeprefix(b"\xef\xbb\xbf")
    if not head or (sniff(head) == ".jsonl" and not plain.lstrip().startswith(b"[")):
        yield from _lines(plain, relation)
        return
    with _spooled(head, sniff(head)) as file:
        yield from read_events(file, relation)


def _lines(chunk: bytes, relation: Table | Stream) -> Iterator[EventBatch]:
    rest, first = b"", 0
    while chunk:
        *lines, rest = (rest + chunk).split(b"\n")
        texts = [line for line in lines if line.strip()]
        if texts:
            yield parse_lines(texts, relation, first)
            first += len(texts)
        chunk = _stdin().read1(_BLOCK)
    if rest.strip():
        yield parse_lines([rest], relation, first)


@contextmanager
def spooled(file: Path, *, sql: bool = False) -> Iterator[Path]:
    """The file itself; for `-` a temporary one with all of stdin, named by its format."""
    if file != STDIN:
        yield file
        return
    head = _stdin().read1(_BLOCK)
    if not head:
        raise UsageError("stdin is empty", hint="name a file, or write into the command: ... | tocsin ... -")
    with _spooled(head, sniff(head, sql=sql)) as path:
        yield path


@contextmanager
def _spooled(head: bytes, suffix: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tocsin-") as folder:
        path = Path(folder, f"stdin{suffix}")
        with path.open("wb") as out:
            out.write(head)
            shutil.copyfileobj(_stdin(), out)
        try:
            yield path
        except TocsinError as error:
            error.fact = error.fact.replace(str(path), "stdin")
            raise
