"""Tocsin keeps standing queries over streams and tables, and tells how each answer changes.

>>> import tocsin
>>> e = tocsin.Engine()
>>> e.execute("CREATE STREAM listings")
>>> s = e.subscribe("SELECT * FROM listings WHERE model = 'x5' AND price <= 580")
>>> for delta in e.publish("listings", {"model": "x5", "price": 499, "color": "red"}):
...     print(delta.subscription, delta.row)
1 {'model': 'x5', 'price': 499, 'color': 'red'}
"""

from pathlib import Path

from tocsin.compiled import forget_stale

forget_stale(Path(__file__).parent)

from tocsin.client import Client  # noqa: E402 - compiled code is looked at first
from tocsin.engine import Engine, Rooms  # noqa: E402
from tocsin.errors import BadRow, ChangeError, SqlError, SubscriptionError, TocsinError  # noqa: E402
from tocsin.model.delta import Delta, Deltas  # noqa: E402
from tocsin.sources import Subscription  # noqa: E402

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
