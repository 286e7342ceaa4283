"""The engine's methods about lookups."""

from __future__ import annotations

from datetime import timedelta
from threading import RLock

from tocsin.limits.lookup import Fetch, LookupSetting
from tocsin.subscriptions.registry import Registry
from tocsin.subscriptions.roster import Roster

__all__ = ["LookupMethods"]


class LookupMethods:
    """Part of `Engine`."""

    _lock: RLock
    _roster: Roster
    _registry: Registry

    def lookup(
        self,
        table: str,
        fetch: Fetch,
        *,
        key: str,
        memory: str | int,
        policy: str = "heeb",
        ttl: str | timedelta | None = None,
    ) -> None:
        """Fill a declared, empty table on demand: enrich streams with rows from elsewhere.

        Before events that join `table` by its primary key `key` are applied, `fetch(keys)` is called once
        with the distinct keys that are not cached, and returns their rows (dicts, Arrow, a data frame); keys
        without a row are left out. At most `memory` ('64 MB', or a number of rows) is cached; `policy` says
        which rows leave (`limits/eviction.py`), `ttl` after how long a row is fetched again. To subscriptions
        it is as if the table had every row; only joins of streams with it are accepted. If `fetch` raises,
        the batch is rejected.

        >>> from tocsin import Engine
        >>> e = Engine()
        >>> e.execute("CREATE TABLE prices (sku STRING PRIMARY KEY, price DOUBLE)")
        >>> e.execute("CREATE STREAM sales (sku STRING)")
        >>> e.lookup("prices", lambda keys: [{"sku": k, "price": 2.5} for k in keys], key="sku", memory=1000)
        >>> s = e.subscribe("SELECT s.sku, p.price FROM sales s JOIN prices p ON s.sku = p.sku")
        >>> [d.row for d in e.publish("sales", {"sku": "tea"})]
        [{'sku': 'tea', 'price': 2.5}]
        """
        with self._lock:
            lookups = self._roster.lookups
            lookups.add(table, fetch, LookupSetting.of(key, memory, policy, ttl))
            try:
                for source, row, _ in self._registry.by_source():
                    lookups.check(source.query(row), source.shape)
            except BaseException:
                lookups.remove(table)
                raise
