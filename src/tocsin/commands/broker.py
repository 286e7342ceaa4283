"""`tocsin broker`: a broker process between a server, or another broker, and clients."""

from __future__ import annotations

import asyncio
import signal
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path

from tocsin.errors import TocsinError, UsageError
from tocsin.network.stations import Broker

__all__ = ["read_size", "read_tokens", "run_broker", "tls_down", "tls_up"]


def read_size(text: str) -> int:
    """A number of bytes.

    >>> read_size("256MB"), read_size("64 kB"), read_size("1000")
    (268435456, 65536, 1000)
    """
    number, unit = text.strip().upper().removesuffix("B").rstrip(), 0
    if number and number[-1] in "KMG":
        number, unit = number[:-1].rstrip(), 10 * (1 + "KMG".index(number[-1]))
    if not number.isdecimal():
        raise UsageError(f"{text!r} is no number of bytes", hint="256MB, for example")
    return int(number) << unit


def read_tokens(file: Path | None) -> list[str] | None:
    """The tokens of a file, one per line; None without a file: everybody may connect."""
    if file is None:
        return None
    try:
        tokens = [line.strip() for line in file.read_text().splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}", hint="a text file, one token per line") from None
    if not tokens:
        raise UsageError(f"{file} has no token", hint="one per line")
    return tokens


def tls_down(certificate: Path | None, key: Path | None, authorities: Path | None) -> ssl.SSLContext | None:
    """How the broker shows itself to those who connect; with `authorities` it asks them for certificates."""
    if certificate is None:
        if key is not None:
            raise UsageError("a key without a certificate", hint="--cert FILE")
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    _load(context, certificate, key)
    if authorities is not None:
        _load_authorities(context, authorities)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def tls_up(certificate: Path | None, key: Path | None, authorities: Path | None) -> ssl.SSLContext | None:
    """How the broker connects upwards: over TLS if there are authorities to trust."""
    if authorities is None:
        return None
    context = ssl.create_default_context()
    _load_authorities(context, authorities)
    if certificate is not None:
        _load(context, certificate, key)
    return context


def _load(context: ssl.SSLContext, certificate: Path, key: Path | None) -> None:
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(
            f"the certificate {certificate} cannot be used: {error}",
            hint="a PEM file, and its key with --key",
        ) from None


def _load_authorities(context: ssl.SSLContext, authorities: Path) -> None:
    try:
        context.load_verify_locations(authorities)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(
            f"the authorities {authorities} cannot be used: {error}", hint="a PEM file of certificates"
        ) from None


async def run_broker(
    broker: Broker,
    address: str,
    tls: ssl.SSLContext | None,
    say: Callable[[str], None],
    signals: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM),
) -> None:
    """Run a broker until a signal comes."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in signals:
        loop.add_signal_handler(number, ended.set)
    await broker.listen(address, tls)
    say(f"{broker.name} listens at port {broker.port}")
    try:
        await ended.wait()
    finally:
        try:
            await broker.close()
        except OSError as error:
            raise TocsinError(f"{broker.name} did not end well: {error}") from None
