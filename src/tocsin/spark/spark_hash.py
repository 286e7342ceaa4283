"""Keys that Spark spreads evenly: its own hash of texts, and texts chosen by it.

Spark sends a key to partition hash(key) mod partitions. Of four shards with plain names, three may share one
of two partitions, and then one core does three quarters of the work. So a shard's key is its name with a
suffix that is chosen such that the hash is the shard's number, modulo 256:

>>> key = key_of("join|a(k)=b(k)|3")
>>> spark_hash(key) % 256, spark_hash(key) % 2, name_of(key)
(3, 1, 'join|a(k)=b(k)|3')

With a power of two of partitions, the shards of a group then differ by at most one per partition.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import count

__all__ = ["key_of", "name_of", "spark_hash"]

_EVEN = 256  # partitions, up to which keys are spread
_MASK = 0xFFFFFFFF
_MARK = "~"


def spark_hash(text: str) -> int:
    """Spark's `hash(text)`: Murmur3 with seed 42, whose last bytes are mixed in one by one.

    >>> spark_hash("Spark")
    228093765
    """
    data = text.encode()
    whole = len(data) - len(data) % 4
    mixed = 42
    for at in range(0, whole, 4):
        mixed = _mixed(mixed, int.from_bytes(data[at : at + 4], "little"))
    for byte in data[whole:]:
        mixed = _mixed(mixed, byte - 256 if byte > 127 else byte)
    mixed ^= len(data)
    mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B & _MASK
    mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 & _MASK
    mixed ^= mixed >> 16
    return mixed - (1 << 32) if mixed >> 31 else mixed


def _mixed(hashed: int, word: int) -> int:
    word = word * 0xCC9E2D51 & _MASK
    word = (word << 15 | word >> 17) & _MASK
    hashed ^= word * 0x1B873593 & _MASK
    hashed = (hashed << 13 | hashed >> 19) & _MASK
    return (hashed * 5 + 0xE6546B64) & _MASK


@lru_cache(maxsize=4096)
def key_of(name: str) -> str:
    """The key of a shard; its number is at the end of its name."""
    _, _, last = name.rpartition("|")
    wanted = int(last) % _EVEN if last.isdecimal() else 0
    return next(key for n in count() if spark_hash(key := f"{name}{_MARK}{n}") % _EVEN == wanted)


def name_of(key: str) -> str:
    """The shard with this key."""
    return key.rpartition(_MARK)[0]
