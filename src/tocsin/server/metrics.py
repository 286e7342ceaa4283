"""Metrics in Prometheus' text format, by tenant.

Counters and histograms are updated as requests come; what a core, its log and its hub know is read when
somebody asks. A tenant's token shows the metrics of that tenant, a token with the scope `admin` those of all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from tocsin.server.hosted import Hosted

__all__ = ["MEDIA_TYPE", "Metrics"]

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class DurationHistogram:
    """Seconds, counted by bounds."""

    def __init__(self) -> None:
        self.counts = [0] * (len(_BOUNDS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(_BOUNDS, seconds)] += 1
        self.total += seconds


class Metrics:
    """What the server counts itself."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, str, int]] = Counter()
        self._seconds: dict[tuple[str, str, str], DurationHistogram] = defaultdict(DurationHistogram)

    def request(self, tenant: str, method: str, path: str, status: int, seconds: float) -> None:
        """A request was answered; `path` is that of its route."""
        self._requests[tenant, method, path, status] += 1
        self._seconds[tenant, method, path].observe(seconds)

    def text(self, tenants: Iterable[tuple[str, Hosted]], only: str | None) -> str:
        """All metrics, or those of one tenant."""
        return "".join(line + "\n" for line in self._lines(tenants, only))

    def _lines(self, tenants: Iterable[tuple[str, Hosted]], only: str | None) -> Iterator[str]:
        yield "# TYPE tocsin_requests_total counter"
        for (tenant, method, path, status), count in sorted(self._requests.items()):
            if only in (None, tenant):
                labels = f'tenant="{tenant}",method="{method}",path="{path}",status="{status}"'
                yield f"tocsin_requests_total{{{labels}}} {count}"
        yield "# TYPE tocsin_request_seconds histogram"
        for (tenant, method, path), found in sorted(self._seconds.items()):
            if only in (None, tenant):
                yield from _histogram(f'tenant="{tenant}",method="{method}",path="{path}"', found)
        gauges: dict[str, list[str]] = {}
        for tenant, hosted in tenants:
            if only in (None, tenant):
                for name, value in _values(hosted):
                    gauges.setdefault(name, []).append(f'tocsin_{name}{{tenant="{tenant}"}} {value}')
        for name, lines in gauges.items():
            yield f"# TYPE tocsin_{name} {'counter' if name.endswith('_total') else 'gauge'}"
            yield from lines


def _histogram(labels: str, found: DurationHistogram) -> Iterator[str]:
    below = 0
    for bound, count in zip((*map(str, _BOUNDS), "+Inf"), found.counts, strict=True):
        below += count
        yield f'tocsin_request_seconds_bucket{{{labels},le="{bound}"}} {below}'
    yield f"tocsin_request_seconds_sum{{{labels}}} {found.total:.6f}"
    yield f"tocsin_request_seconds_count{{{labels}}} {below}"


def _values(hosted: Hosted) -> Iterator[tuple[str, float]]:
    core, log = hosted.core, hosted.core.log
    yield "up", 0 if core.failed else 1
    yield "subscriptions", core.subscription_count
    yield "followers", len(hosted.hub)
    yield "log_position", log.position
    yield "log_command_bytes", log.command_bytes
    yield "log_delta_bytes", log.block_bytes
    yield "snapshot_position", log.base
    yield "queued_tasks", core.queued
    yield "cost_microseconds_per_row", round(core.cost_us, 3)
    yield "changes_total", core.counters.changes
    yield "deltas_total", core.counters.deltas
    yield "commits_total", core.counters.commits
    yield "apply_seconds_total", round(core.counters.apply_seconds, 6)
    yield "commit_seconds_total", round(core.counters.commit_seconds, 6)
