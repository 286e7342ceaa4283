"""Conditions on texts that are addresses: `ip_key` of them is in a range (`model/derived.py`).

>>> print(in_network(column("source"), network_of("10.1.0.0/16")))
ip_key(source) BETWEEN 'v4.0a010000' AND 'v4.0a01ffff'
>>> address_of("10.1.2.3"), address_of("10.1.2")
(IPv4Network('10.1.2.3/32'), None)
"""

from __future__ import annotations

import re
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from tocsin.language.algebra import Between, Column, Compare, Predicate
from tocsin.model.derived import ip_key
from tocsin.model.paths import MARK, shown_name
from tocsin.rules.atoms import column

__all__ = ["Network", "address_of", "column", "in_network", "network_of"]

Network = IPv4Network | IPv6Network
_LIKE_ADDRESS = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+|[0-9a-fA-F:]*:[0-9a-fA-F:]*")


def address_of(text: str) -> Network | None:
    """The network of one address, if the text is one."""
    if _LIKE_ADDRESS.fullmatch(text) is None:
        return None
    try:
        found = ip_address(text)
    except ValueError:
        return None
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return ip_network(found)


def network_of(text: str) -> Network | None:
    """The network of a text such as 10.0.0.0/8; bits after the mask are left out."""
    if "/" not in text:
        return None
    try:
        return ip_network(text, strict=False)
    except ValueError:
        return None


def in_network(where: Column, network: Network) -> Predicate:
    """The text is an address in a network."""
    first, last = ip_key(str(network[0])), ip_key(str(network[-1]))
    key = Column(f"{MARK}ip_key({shown_name(where.name)})")
    return Compare(key, "=", first) if first == last else Between(key, first, last)
