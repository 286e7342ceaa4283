"""The wire between server, brokers and clients: frames on a stream of bytes.

    4 bytes   length of the rest, little-endian
    1 byte    kind of the frame: its place in `FRAMES`
    rest      MessagePack: the fields of the frame's class, by position

Messages are one field: raw arrays (`batches.py`). Up is towards the server, down towards clients:

    Hello, Welcome      who is there, which version; the first frame each way
    Update        down  messages, and a watermark: yours up to it are before this
    ClientRequest, Answer  up, down   of a client to the server, and what brokers learn from the answer
    Resume, Replay  up, down   "I have all up to a watermark": what is missing since
    Grant         down  before a Replay to a client: what it may receive, of what it has subscribed to
    Again         down  the log is too short for a replay here: resume yourself
    NewDigest, Leave  up   what is wanted below a link has become less
    Have          up    payloads that a broker keeps (`payloads.py`): their ids suffice from now on
    Fetch, Payloads  up, down   payloads that it has dropped
    Where, Place  up, down   a client's points, and the broker below that is nearest to them
    Ping          either   still here: sent to a peer that got nothing else of late
    Bye           either   why the connection is closed

What a peer sends is checked before memory is allocated for it: a frame has at most 16 MB, a message 4,096
boxes.

>>> frame = ClientRequest(request=7, body=b"SELECT 1")
>>> decode(encode(frame)[4:]) == frame
True
"""

from __future__ import annotations

import struct

import msgspec
import numpy as np
from numpy.typing import NDArray

from tocsin.errors import TocsinError
from tocsin.network.batches import EMPTY, PLANES, MessageBatch

__all__ = [
    "FRAMES",
    "ID_BYTES",
    "MAX_FRAME",
    "MAX_PIECE",
    "VERSION",
    "Again",
    "Answer",
    "Bye",
    "ClientRequest",
    "Fetch",
    "FormBoxes",
    "Frame",
    "FrameError",
    "Grant",
    "Have",
    "Hello",
    "Leave",
    "NewDigest",
    "PackedBatch",
    "Payloads",
    "Ping",
    "Place",
    "Replay",
    "Resume",
    "Update",
    "Welcome",
    "Where",
    "decode",
    "encode",
    "length_of",
    "read_boxes",
    "write_boxes",
]  # fmt: skip

VERSION = 2
MAX_FRAME = 16 << 20
MAX_PIECE = 8 << 20  # bytes of messages in one frame; a single message may be larger
ID_BYTES = 16  # of a payload
_HEAD = struct.Struct("<IB")
_LENGTH = struct.Struct("<I")
FormBoxes = tuple[NDArray[np.int64], NDArray[np.int64]]
"""The form of each box, and boxes over `PLANES` planes."""


class FrameError(TocsinError):
    """Bytes that are no frame: the connection cannot be used any more."""


class Frame(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """What is sent at once."""


class Hello(Frame):
    version: int
    token: str
    name: str
    is_client: bool
    incarnation: str = ""  # of a broker with a repository: another one after each start
    address: str = ""  # of a broker, for clients that are sent to it


class Welcome(Frame):
    version: int
    server: str  # differs after a restart of the server: then nothing can be resumed


class PackedBatch(Frame):
    """Messages as bytes; opened where somebody reads them."""

    messages: int = 0
    boxes: int = 0
    data: bytes = b""

    @classmethod
    def of(cls, batch: MessageBatch) -> PackedBatch:
        return cls(*batch.sizes, batch.to_bytes()) if len(batch) else cls()

    def open(self) -> MessageBatch:
        """The messages; FrameError if the bytes are none."""
        try:
            return MessageBatch.from_bytes(self.messages, self.boxes, self.data) if self.data else EMPTY
        except TocsinError as error:
            raise FrameError(str(error)) from None


class Update(Frame):
    watermark: int
    batch: PackedBatch
    light: bytes = b""  # bits: of these messages the body is the id of a payload


class ClientRequest(Frame):
    request: int
    body: bytes


class Answer(Frame):
    request: int
    number: int  # of the answers on this link
    forms: bytes  # the forms and points that the client wants from now on (`write_boxes`)
    failure: str
    body: bytes


class Resume(Frame):
    request: int
    server: str
    watermark: int
    boxes: bytes  # all that is wanted below a broker; what a client writes here does not count
    key: str  # of a client: the beginning of its subscriptions' keys, which nobody else knows
    subscriptions: list[int]  # of a client


class Replay(Frame):
    request: int
    upto: int
    server: str
    snapshots: list[bytes]  # of the requested subscriptions, if the log is too short
    is_complete: bool  # else there is a gap that only snapshots fill
    batch: PackedBatch


class Grant(Frame):
    request: int  # the Resume
    number: int  # of the answers on this link
    forms: bytes  # as in an Answer


class Again(Frame):
    pass


class NewDigest(Frame):
    upto: int  # the last answer that is in it
    boxes: bytes


class Leave(Frame):
    upto: int  # the last answer that the client had
    boxes: bytes


class Bye(Frame):
    reason: str


class Ping(Frame):
    pass


class Have(Frame):
    ids: bytes


class Fetch(Frame):
    ids: bytes


class Where(Frame):
    boxes: bytes  # all points that the client wants


class Place(Frame):
    address: str  # empty: stay


class Payloads(Frame):
    found: list[tuple[bytes, bytes | None]]  # id and payload; None: nobody has it any more


FRAMES: tuple[type[Frame], ...] = (
    *(Hello, Welcome, Update, ClientRequest, Answer, Resume, Replay, Again, NewDigest, Leave, Bye, Grant),
    *(Ping, Have, Fetch, Payloads, Where, Place),
)
_KINDS = {frame: number for number, frame in enumerate(FRAMES)}


_ENCODER = msgspec.msgpack.Encoder()
_DECODERS = [msgspec.msgpack.Decoder(frame) for frame in FRAMES]


def encode(frame: Frame) -> bytes:
    """A frame as bytes, with its length before it."""
    fields = _ENCODER.encode(frame)
    if len(fields) + 1 > MAX_FRAME:
        raise TocsinError(f"a frame of {len(fields) + 1} bytes is too long", hint=f"at most {MAX_FRAME}")
    return _HEAD.pack(len(fields) + 1, _KINDS[type(frame)]) + fields


def length_of(data: bytes) -> int:
    """The length of a frame from its first four bytes; an error before anything is read if it is too long."""
    (length,) = _LENGTH.unpack(data)
    if not 2 <= length <= MAX_FRAME:
        raise FrameError(f"a frame of {length} bytes", hint=f"2 to {MAX_FRAME} are possible")
    return int(length)


def decode(data: bytes) -> Frame:
    """A frame from the bytes after its length; FrameError if they are none."""
    if not data or data[0] >= len(FRAMES):
        raise FrameError(f"a frame of unknown kind {data[0]}" if data else "an empty frame")
    try:
        return _DECODERS[data[0]].decode(memoryview(data)[1:])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise FrameError(f"{FRAMES[data[0]].__name__}: {error}") from None


def write_boxes(forms: NDArray[np.int64], boxes: NDArray[np.int64]) -> bytes:
    """Boxes with their forms as bytes."""
    return b"".join([np.asarray(forms, np.int64).tobytes(), np.asarray(boxes, np.int64).tobytes()])


def read_boxes(data: bytes, most: int) -> FormBoxes:
    """What `write_boxes` wrote; FrameError if it is not that, or there are too many or empty boxes."""
    count, rest = divmod(len(data), 8 * (1 + 4 * PLANES))
    if rest or count > most:
        raise FrameError(f"{len(data)} bytes are no boxes" if rest else f"{count} boxes: at most {most}")
    forms = np.frombuffer(data, np.int64, count)
    boxes = np.frombuffer(data, np.int64, count * 4 * PLANES, 8 * count).reshape(count, PLANES, 4)
    if (boxes[..., 0::2] > boxes[..., 1::2]).any():
        raise FrameError("a box is empty")
    return forms, boxes
