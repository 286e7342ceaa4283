"""Bytes that are no frames, or frames that have no place, by kind; and a client that sends them."""

from __future__ import annotations

import asyncio
import random
import struct
from collections import Counter
from collections.abc import Callable

import numpy as np

from tocsin.errors import TocsinError
from tocsin.network.wire import (
    FRAMES,
    MAX_FRAME,
    VERSION,
    Again,
    Answer,
    Bye,
    ClientRequest,
    Grant,
    Have,
    Hello,
    Leave,
    NewDigest,
    PackedBatch,
    Payloads,
    Ping,
    Place,
    Replay,
    Resume,
    Update,
    Welcome,
    decode,
    encode,
    write_boxes,
)

CLIENT = encode(Hello(VERSION, "", "x", True))
EMPTY_BOX = write_boxes(np.array([1]), np.array([[[5, 0, 0, 5]] * 2]))
TOO_MANY = write_boxes(np.zeros(100_001, np.int64), np.zeros((100_001, 2, 4), np.int64))
BROKER = encode(Hello(VERSION, "", "x", False, "some incarnation"))


def random_bytes(rng: random.Random) -> bytes:
    return rng.randbytes(rng.randint(1, 200))


def random_after_hello(rng: random.Random) -> bytes:
    return CLIENT + rng.randbytes(rng.randint(1, 200))


def wrong_version(rng: random.Random) -> bytes:
    return encode(Hello(rng.choice([0, VERSION + 1, -5, 2**40]), "", "x", rng.random() < 0.5))


def no_hello(rng: random.Random) -> bytes:
    return encode(rng.choice([ClientRequest(1, b"?"), Ping(), Again(), Have(b"")]))


def long_lengths(rng: random.Random) -> bytes:
    length = rng.choice([0, 1, MAX_FRAME + 1, 2**31, 2**32 - 1])
    return CLIENT + struct.pack("<I", length) + rng.randbytes(20)


def long_hello(rng: random.Random) -> bytes:
    return struct.pack("<I", rng.randint(5000, MAX_FRAME)) + rng.randbytes(20)


def truncated(rng: random.Random) -> bytes:
    frame = encode(valid(rng))
    return CLIENT + frame[: rng.randint(1, len(frame) - 1)]


def short_lengths(rng: random.Random) -> bytes:
    """A valid head whose body is cut: the length is that of less than the frame."""
    frame = encode(valid(rng))
    length = rng.randint(2, len(frame) - 5)
    return CLIENT + struct.pack("<I", length) + frame[4 : 4 + length]


def unknown_kinds(rng: random.Random) -> bytes:
    body = bytes([rng.randint(len(FRAMES), 255)]) + rng.randbytes(rng.randint(1, 30))
    return CLIENT + struct.pack("<I", len(body)) + body


def misplaced(rng: random.Random) -> bytes:
    frames = [
        Hello(VERSION, "", "x", True),
        Welcome(VERSION, ""),
        Update(1, PackedBatch()),
        Update(1, PackedBatch(1, 1, rng.randbytes(150)), b"\xff"),
        Answer(1, 1, b"", "", b""),
        Replay(1, 1, "", [], True, PackedBatch(5, 5, b"x")),
        Again(),
        Grant(1, 1, b""),
        Payloads([(b"x" * 16, b"payload")]),
        Place("nowhere"),
    ]
    return rng.choice([CLIENT, BROKER]) + encode(rng.choice(frames))


def bad_regions(rng: random.Random) -> bytes:
    """Boxes that are cut, empty or too many; ids that are none."""
    cut = rng.randbytes(rng.choice([1, 71, 73]))
    boxes = rng.choices([EMPTY_BOX, cut, TOO_MANY], [50, 50, 1])[0]
    frames = [NewDigest(0, boxes), Resume(1, "", 0, boxes, "", []), Leave(0, boxes), Have(b"short")]
    return BROKER + encode(rng.choice(frames))


def changed(rng: random.Random) -> bytes:
    """A valid frame with other bytes in it."""
    data = bytearray(encode(valid(rng)))
    for _ in range(rng.randint(1, 5)):
        data[rng.randrange(4, len(data))] = rng.randrange(256)
    return CLIENT + bytes(data)


def valid(rng: random.Random):
    return rng.choice(
        [
            ClientRequest(rng.randint(1, 9), rng.randbytes(60)),
            Resume(1, "server", 5, b"", "key", [1, 2, 3]),
            Leave(1, write_boxes(np.array([1]), np.array([[[0, 5, 0, 5]] * 2]))),
        ]
    )


KINDS: list[Callable[[random.Random], bytes]] = [
    *(random_bytes, random_after_hello, wrong_version, no_hello, long_lengths, long_hello, truncated),
    *(short_lengths, unknown_kinds, misplaced, bad_regions, changed),
]


def is_malformed(data: bytes) -> bool:
    """Whether a station has to close the connection: not if all of it is frames that have a place."""
    frames = []
    while data:
        if len(data) < 4:
            return True
        (length,) = struct.unpack("<I", data[:4])
        if not 2 <= length <= len(data) - 4:
            return True
        try:
            frames.append(decode(data[4 : 4 + length]))
        except TocsinError:
            return True
        data = data[4 + length :]
    # the random ones may be frames by chance; all others are wrong by what they say
    return not all(
        isinstance(frame, Hello | ClientRequest | Resume | Leave | Ping | Bye | Have) for frame in frames
    )


def drawn(rng: random.Random) -> tuple[str, bytes]:
    while True:
        kind = rng.choice(KINDS)
        data = kind(rng)
        if kind in (wrong_version, no_hello, bad_regions, misplaced) or is_malformed(data):
            return kind.__name__, data


async def spoken(port: int, data: bytes) -> str:
    """Send bytes and nothing after them; "closed: " and the reason, or what happened instead."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer, happened = b"", "no reason"
    try:
        writer.write(data)
        writer.write_eof()
        answer = await asyncio.wait_for(reader.read(), 20)
    except (ConnectionError, TimeoutError) as error:
        happened = f"{type(error).__name__} after {len(data)} bytes"
    finally:
        writer.close()
    while len(answer) >= 4:
        (length,) = struct.unpack("<I", answer[:4])
        frame = decode(answer[4 : 4 + length])
        if isinstance(frame, Bye):
            happened = f"closed: {frame.reason}"
        answer = answer[4 + length :]
    return happened


async def send_all(ports: list[int], count: int, seed: int, at_once: int = 8) -> Counter[str]:
    """Send so many, to the ports in turn; those that were not closed with a reason, by kind."""
    rng, wrong = random.Random(seed), Counter()

    async def send_some(turn: int) -> None:
        for number in range(turn, count, at_once):
            kind, data = drawn(rng)
            happened = await spoken(ports[number // at_once % len(ports)], data)
            if not happened.startswith("closed: "):
                wrong[f"{kind}: {happened}"] += 1

    await asyncio.gather(*(send_some(turn) for turn in range(at_once)))
    return wrong
