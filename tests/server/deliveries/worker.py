"""A process for the kill test: commits blocks to a log beside its deliveries, until it is killed.

python worker.py FOLDER URL COMMANDS
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from tocsin.server.blocks import Block
from tocsin.server.deliveries.definitions import DeliveryRule
from tocsin.server.deliveries.service import Deliveries
from tocsin.server.log import Log, Record


def block(position: int, *changes: tuple[int, int, str]) -> Block:
    """The block of a position: (subscription, sign, row) each."""
    ids, signs, rows = zip(*changes, strict=True)
    size = len(changes)
    return Block(
        position,
        int(time.time() * 1e6),
        "change",
        np.full(size, position),
        np.array(ids),
        np.array(signs, np.int8),
        np.arange(size, dtype=np.int32),
        [row.encode() for row in rows],
        ["ann"],
        np.zeros(size, np.int32),
    )


def commit(log: Log, *blocks: Block) -> None:
    log.commit([Record(each.position, each.at, b"x") for each in blocks], blocks)


def main(folder: Path, url: str, commands: int) -> None:
    log = Log(folder / "log.sqlite")
    deliveries = Deliveries(log, folder, lambda id: True)
    if not deliveries.names():
        deliveries.keep_blocks()
        deliveries.add(
            DeliveryRule("all", url, first_wait=0.01, longest_wait=0.05, tries=100), {}, log.position
        )
    print("ready", flush=True)
    while log.position < commands:
        n = log.position + 1
        commit(log, block(n, (n % 3, 1 if n % 2 else -1, f'{{"n":{(n + 1) // 2}}}')))
        deliveries.wake()
    while any(deliveries.shown(name)["waiting"] for name in deliveries.names()):
        time.sleep(0.02)
    time.sleep(0.1)
    deliveries.close()
    log.close()
    print("done", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
