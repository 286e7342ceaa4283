"""Malformed frames against a server and a broker: each costs its connection, with a reason, and nothing else.

`make test-network` sends 100,000 (TOCSIN_FRAMES).
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path
from threading import Event, Thread

import numpy as np

from tests.commands.test_broker import started
from tests.network.malformed import send_all
from tests.network.test_described import TABLES, change
from tests.network.test_stations import SQL, equal
from tocsin.engine import Engine
from tocsin.network.connect import connect
from tocsin.network.server import serve

FRAMES = int(os.environ.get("TOCSIN_FRAMES", "2000"))
SEED = int(os.environ.get("TOCSIN_SEED", "0"))  # of the frames


def resident(process: int | str) -> int:
    """Megabytes of a process."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20


def test_malformed_frames_cost_their_connection_and_nothing_else() -> None:
    engine = Engine()
    engine.execute(TABLES)
    rng, ended = random.Random(8), Event()

    def work() -> None:
        while not ended.wait(0.02):
            change(rng, engine)

    with serve(engine, "127.0.0.1:0") as server:
        process, port = started("--up", f"127.0.0.1:{server.port}", "--listen", "127.0.0.1:0")
        try:
            with connect(f"127.0.0.1:{port}") as client, connect(f"127.0.0.1:{server.port}") as direct:
                followed = [one.subscribe(sql) for sql in SQL for one in (client, direct)]
                thread = Thread(target=work)
                thread.start()
                try:
                    ports = [server.port, port]
                    sizes = []
                    for part in range(4):
                        assert asyncio.run(send_all(ports, FRAMES // 4, seed=SEED + part)) == {}
                        sizes.append([resident(process.pid), resident("self")])
                finally:
                    ended.set()
                    thread.join()
                equal(engine, followed)
                assert len(server.server.peers) == 2  # the broker and a client, as before
                grown = np.diff(sizes, axis=0)  # once by loading compiled code, but not in each part
                assert grown.min(axis=0).max() < 32, f"megabytes of the broker and of the server: {sizes}"
        finally:
            process.terminate()
            process.wait(20)
            process.stderr.close()
