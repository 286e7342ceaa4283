"""A server in a thread of this process, for tests and examples: a free port of 127.0.0.1, real HTTP.

>>> import httpx
>>> with local_server() as url:
...     httpx.get(f"{url}/v1/health").json()
{'status': 'ok'}
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from time import sleep
from typing import Any

from tocsin.errors import TocsinError
from tocsin.server.serve import ServeOptions, make_server

__all__ = ["local_server"]


@contextmanager
def local_server(folder: Path | None = None, **options: Any) -> Iterator[str]:
    """The address of a server that runs while the block does; without a folder, its data goes with it.

    `options` are those of `tocsin.server.serve.Options`.
    """
    with TemporaryDirectory() as temporary:
        server = make_server(ServeOptions(folder or Path(temporary), **{"port": 0, **options}))
        thread = Thread(target=server.run, daemon=True)
        thread.start()
        while not server.started:
            if not thread.is_alive():
                raise TocsinError("the server did not start", hint="its log has the reason")
            sleep(0.005)
        try:
            yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(20)
