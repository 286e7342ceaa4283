"""Clients of a server: send changes, register subscriptions, keep their contents through cuts and restarts.

    requests.py     what is sent, how the answer is read; retries; no I/O
    messages.py     messages of a follower, and the stream that they come from; no I/O
    tries.py        when a request is sent again, and a follower connects again; no I/O
    contents.py     contents = snapshot + deltas, with the token that belongs to them
    client.py       `Remote`: calls that wait
    aio.py          `AsyncRemote`: calls that are awaited

Install it with the extra `remote`.
"""

from tocsin.remote.aio import AsyncRemote
from tocsin.remote.client import Remote
from tocsin.remote.contents import RemoteContents
from tocsin.remote.messages import RemoteMessage
from tocsin.remote.requests import RemoteError

__all__ = ["AsyncRemote", "Remote", "RemoteContents", "RemoteError", "RemoteMessage"]
