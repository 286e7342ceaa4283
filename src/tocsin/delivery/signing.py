"""Signatures of the Standard Webhooks scheme: the receiver knows who sent a message, and when.

    webhook-id: msg_2b9c...                     the same in every retry: receivers deduplicate by it
    webhook-timestamp: 1714557600               of this try, in seconds
    webhook-signature: v1,K5oZ... v1,fLq1...    one for each secret, while secrets are exchanged

What is signed is `id.timestamp.body` by HMAC with SHA-256. A secret is `whsec_` and 24 to 64 bytes in base64.
Receivers use `verify`, or any library of the scheme.

>>> secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
>>> headers = signed([secret], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
>>> headers["webhook-signature"]
'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE='
>>> verify(secret, headers, b'{"test": 2432232314}', now=1614265330)
'msg_p5jXN8AQM9LWM0D4loKWxJek'
"""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets as random
import time
from collections.abc import Mapping, Sequence
from hashlib import blake2b

from tocsin.errors import TocsinError

__all__ = ["BadSignature", "check_secret", "message_id", "new_secret", "signed", "verify"]

TOLERANCE = 300  # seconds that a timestamp may be away
_PREFIX = "whsec_"


class BadSignature(TocsinError):
    """A message that was not signed with this secret, or too long ago."""


def new_secret() -> str:
    """A secret of 32 random bytes."""
    return _PREFIX + base64.b64encode(random.token_bytes(32)).decode()


def check_secret(secret: str) -> bytes:
    """The key of a secret; an error if it is none."""
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(_PREFIX) or not 24 <= len(key) <= 64:
        raise TocsinError(
            "this is no secret of a webhook",
            hint="whsec_ and 24 to 64 bytes in base64; leave it out to get one",
        )
    return key


def message_id(*parts: object) -> str:
    """The id of a message that is known by these parts: the same whenever it is made again.

    >>> message_id("q", 5, "ann", 0) == message_id("q", 5, "ann", 0) != message_id("q", 5, "ann", 1)
    True
    """
    text = "\0".join(map(str, parts))
    return "msg_" + blake2b(text.encode(), digest_size=15).hexdigest()


def signed(secrets: Sequence[str], id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers of one try; without secrets it has no signature."""
    headers = {"webhook-id": id, "webhook-timestamp": str(timestamp)}
    if secrets:
        headers["webhook-signature"] = " ".join(_signature(secret, id, timestamp, body) for secret in secrets)
    return headers


def verify(
    secret: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    now: float | None = None,
    tolerance: float = TOLERANCE,
) -> str:
    """For receivers: the id of a message that was signed with this secret; else BadSignature is raised."""
    given = {name.lower(): value for name, value in headers.items()}
    id, stamp, found = (given.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature"))
    if not (id and stamp.isdecimal() and found):
        raise BadSignature(
            "the message is not signed", hint="webhook-id, webhook-timestamp, webhook-signature"
        )
    if abs((time.time() if now is None else now) - int(stamp)) > tolerance:
        raise BadSignature("the message was signed too long ago, or the clocks differ")
    expected = _signature(secret, id, int(stamp), body)
    if not any(hmac.compare_digest(expected, one) for one in found.split(" ")):
        raise BadSignature("the message was not signed with this secret, or was changed on its way")
    return id


def _signature(secret: str, id: str, timestamp: int, body: bytes) -> str:
    text = b"%b.%d.%b" % (id.encode(), timestamp, body)
    return "v1," + base64.b64encode(hmac.digest(check_secret(secret), text, "sha256")).decode()
