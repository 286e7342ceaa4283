"""Tocsin keeps standing queries over streams and tables, and tells how each answer changes.

>>> import tocsin
>>> e = tocsin.Engine()
>>> e.execute("CREATE STREAM listings")
>>> s = e.subscribe("SELECT * FROM listings WHERE model = 'x5' AND price <= 580")
>>> for delta in e.publish("listings", {"model": "x5", "price": 499, "color": "red"}):
...     print(delta.subscription, delta.row)
1 {'model': 'x5', 'price': 499, 'color': 'red'}
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tocsin.compiled import discard_stale

discard_stale(Path(__file__).parent)  # compiled code is looked at before anything may load it

if TYPE_CHECKING:
    from tocsin.client import Client
    from tocsin.engine import Engine, Rooms
    from tocsin.errors import BadRow, ChangeError, SqlError, SubscriptionError, TocsinError
    from tocsin.model.delta import Delta, Deltas
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
]

_HOMES = {
    "client": ["Client"],
    "engine": ["Engine", "Rooms"],
    "errors": ["BadRow", "ChangeError", "SqlError", "SubscriptionError", "TocsinError"],
    "model.delta": ["Delta", "Deltas"],
    "subscriptions.sources": ["Subscription"],
}


def __getattr__(name: str) -> Any:
    """Names are loaded at their first use: whoever needs one small module does not pay for the engine."""
    for home, names in _HOMES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
