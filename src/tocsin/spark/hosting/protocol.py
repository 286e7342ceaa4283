"""Frames over a socket: a small JSON header, and payloads that are sent and received without extra copies.

    u32 length of the header   u32 number of payloads   u64 length of each   header (JSON)   payloads

>>> import socket
>>> here, there = socket.socketpair()
>>> send(here, {"do": "step"}, [b"abc", b""])
>>> receive(there)
({'do': 'step'}, [b'abc', b''])
>>> here.close(); there.close()
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Sequence
from typing import Any

__all__ = ["Header", "PeerClosed", "receive", "send"]

Header = dict[str, Any]

_FIRST = struct.Struct("<II")
_AT_ONCE = 512  # buffers per call; the system accepts 1024


class PeerClosed(Exception):
    """The other side has closed the connection; no other error raises this."""


def send(connection: socket.socket, header: Header, payloads: Sequence[bytes] = ()) -> None:
    """Send one frame."""
    text = json.dumps(header).encode()
    lengths = struct.pack(f"<{len(payloads)}Q", *map(len, payloads))
    parts: list[memoryview] = [memoryview(_FIRST.pack(len(text), len(payloads)) + lengths + text)]
    parts += [memoryview(payload) for payload in payloads if len(payload)]
    at = 0
    while at < len(parts):
        try:
            sent = connection.sendmsg(parts[at : at + _AT_ONCE])
        except OSError as error:
            raise PeerClosed(str(error)) from error
        while sent:
            if sent < len(parts[at]):
                parts[at] = parts[at][sent:]
                break
            sent -= len(parts[at])
            at += 1


def receive(connection: socket.socket) -> tuple[Header, list[bytes]]:
    """The next frame."""
    length, count = _FIRST.unpack(_exactly(connection, _FIRST.size))
    lengths = struct.unpack(f"<{count}Q", _exactly(connection, 8 * count))
    header = json.loads(_exactly(connection, length))
    return header, [_exactly(connection, size) for size in lengths]


def _exactly(connection: socket.socket, size: int) -> bytes:
    """Exactly `size` bytes; mostly by one call into one object."""
    try:
        data = connection.recv(size, socket.MSG_WAITALL) if size else b""
        if len(data) == size:
            return data
        whole = bytearray(size)  # interrupted, or more than the system returns at once
        whole[: len(data)] = data
        at = got = len(data)
        while got and at < size:
            got = connection.recv_into(memoryview(whole)[at:], flags=socket.MSG_WAITALL)
            at += got
    except OSError as error:
        raise PeerClosed(str(error)) from error
    if at < size:
        raise PeerClosed("it closed the connection")
    return bytes(whole)
