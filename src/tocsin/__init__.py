"""Tocsin keeps standing queries over streams and tables, and tells how each answer changes.

>>> import tocsin
>>> e = tocsin.Engine()
>>> e.execute("CREATE STREAM listings")
>>> s = e.subscribe("SELECT * FROM listings WHERE model = 'x5' AND price <= 580")
>>> for delta in e.publish("listings", {"model": "x5", "price": 499, "color": "red"}):
...     print(delta.subscription, delta.row)
1 {'model': 'x5', 'price': 499, 'color': 'red'}
"""

from tocsin.client import Client
from tocsin.engine import Engine, Rooms
from tocsin.errors import BadRow, ChangeError, SqlError, SubscriptionError, TocsinError
from tocsin.model.delta import Delta, Deltas
from tocsin.sources import Subscription

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
