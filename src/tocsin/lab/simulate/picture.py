"""The overlay as a picture: brokers by the middle of their subscriptions, links by the bytes they carry."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tocsin.errors import UsageError
from tocsin.lab.simulate.networks import SimulateSetting
from tocsin.lab.simulate.run import SchemeResult
from tocsin.network.base import Network

__all__ = ["draw_overlay", "require_matplotlib"]


def require_matplotlib() -> None:
    """Raise an error if nothing can be drawn."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise UsageError("--picture needs matplotlib", hint="pip install 'tocsin[bench]'") from None


def draw_overlay(path: Path, network: Network, result: SchemeResult, setting: SimulateSetting) -> None:
    """Wider and darker links carry more; the server is a square."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot
    from matplotlib.collections import LineCollection

    assert result.links is not None
    members = network.placement.members(len(result.links))
    count = np.maximum(1, np.diff(members.start))
    sums = np.concatenate([np.zeros((1, 4)), np.cumsum(members.point, axis=0, dtype=np.float64)])
    middle = (sums[members.start[1:]] - sums[members.start[:-1]]) / count[:, None]
    places = np.stack([middle[:, :2].mean(axis=1), middle[:, 2:].mean(axis=1)], axis=1)
    sender, receiver = np.nonzero(result.links)
    bytes_ = result.links[sender, receiver]
    share = np.sqrt(bytes_ / bytes_.max(initial=1.0))
    order = np.argsort(share)
    lines = LineCollection(
        list(np.stack([places[sender], places[receiver]], axis=1)[order]),
        linewidths=0.2 + 3 * share[order],
        colors=[(0.1, 0.2, 0.5, 0.1 + 0.8 * part) for part in share[order].tolist()],
    )
    figure, axes = pyplot.subplots(figsize=(8, 6), layout="constrained")
    axes.add_collection(lines)
    x, y = places[network.server].tolist()
    axes.scatter(places[:, 0], places[:, 1], s=5, color="black", zorder=2)
    axes.scatter(x, y, s=60, marker="s", color="tab:red", zorder=3, label="server")
    axes.set_xlabel("A: middle of the ranges")
    axes.set_ylabel("C: middle of the ranges")
    axes.legend(fontsize=8)
    axes.set_title(
        f"{result.scheme}, {setting.workload}, {setting.network}, zones by {setting.zones}: "
        f"{result.traffic_bytes_per_event:,.0f} bytes per event, most {bytes_.max(initial=0):,.0f} on a link",
        fontsize=9,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
