"""Pictures: bytes against time, of policies and of plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from remat.errors import ArgumentError
from remat.units import bytes_text

if TYPE_CHECKING:
    from remat.inspect.comparison import Comparison
    from remat.inspect.pareto import Pareto

FRONT, OTHER = "#0b6e99", "#9a9a9a"


def plot_comparison(comparison: Comparison, path: str) -> None:
    """One labelled point for each policy; those on the front are joined."""
    rows = [r for r in comparison if r.bytes is not None and r.seconds is not None]
    points = [(r.bytes or 0, r.seconds or 0.0, r.policy, r.front) for r in rows]
    kind = "temporaries and results, compiled" if comparison.measured else "peak besides arguments, simulated"
    _draw(path, points, kind, f"{comparison.function} for {comparison.target}", labelled=True)


def plot_pareto(pareto: Pareto, path: str) -> None:
    """All plans that were tried; those worth having are joined."""
    points = [(c.peak_bytes, c.seconds, c.structure, c in pareto.choices) for c in pareto.tried]
    title = f"plans for {pareto.function} on {pareto.target}"
    _draw(path, points, "peak besides arguments, simulated", title, labelled=False)


def _draw(
    path: str, points: Sequence[tuple[int, float, str, bool]], bytes_kind: str, title: str, labelled: bool
) -> None:
    if not points:
        raise ArgumentError("there is nothing to draw: no policy has bytes and seconds.")
    figure, axes = _figure()
    unit, name = _unit(max(p[0] for p in points))
    least = min(p[1] for p in points) or 1.0
    front = sorted((p[0] / unit, p[1] / least) for p in points if p[3])
    axes.step([x for x, _ in front], [y for _, y in front], where="post", color=FRONT, linewidth=1.2, zorder=1)
    for size, seconds, label, on_front in points:
        axes.scatter(size / unit, seconds / least, color=FRONT if on_front else OTHER, s=28, zorder=2)
        if labelled:
            axes.annotate(label, (size / unit, seconds / least), xytext=(5, 5), textcoords="offset points", fontsize=8)
    axes.set_xlabel(f"{name}, {bytes_kind}")
    axes.set_ylabel("time by peak rates, least is 1")
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.25)
    axes.margins(x=0.14, y=0.1)
    figure.tight_layout()
    figure.savefig(path)


def _figure() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ArgumentError("a picture needs matplotlib: pip install 'remat[plot]'.") from None
    figure = Figure(figsize=(7, 4.2))
    return figure, figure.subplots()


def _unit(largest: int) -> tuple[int, str]:
    name = bytes_text(largest).rpartition(" ")[2]
    return {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}.get(name, 2**40), name
