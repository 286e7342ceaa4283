"""Tocsin: standing SQL queries over streams and tables; each subscriber receives how its answer changes.

>>> import tocsin
>>> e = tocsin.Engine()
>>> e.execute("CREATE STREAM listings")
>>> s = e.subscribe("SELECT * FROM listings WHERE model = 'x5' AND price <= 580")
>>> for delta in e.publish("listings", {"model": "x5", "price": 499, "color": "red"}):
...     print(delta.subscription, delta.row)
1 {'model': 'x5', 'price': 499, 'color': 'red'}
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tocsin.client import Client
    from tocsin.engine import Engine, Rooms
    from tocsin.errors import BadRow, ChangeError, SqlError, SubscriptionError, TocsinError
    from tocsin.model.delta import Delta, Deltas
    from tocsin.network.connect import connect
    from tocsin.network.described import TokenScope, describe
    from tocsin.network.server import serve
    from tocsin.subscriptions.sources import Subscription

__all__ = [
    "BadRow",
    "ChangeError",
    "Client",
    "Delta",
    "Deltas",
    "Engine",
    "Rooms",
    "SqlError",
    "Subscription",
    "SubscriptionError",
    "TocsinError",
    "TokenScope",
    "connect",
    "describe",
    "serve",
]

_MODULES = {
    "client": ["Client"],
    "engine": ["Engine", "Rooms"],
    "errors": ["BadRow", "ChangeError", "SqlError", "SubscriptionError", "TocsinError"],
    "model.delta": ["Delta", "Deltas"],
    "network.connect": ["connect"],
    "network.described": ["TokenScope", "describe"],
    "network.server": ["serve"],
    "subscriptions.sources": ["Subscription"],
}


def __getattr__(name: str) -> Any:
    """Load a name at its first use, so that a small module can be imported without the engine."""
    for module, names in _MODULES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
