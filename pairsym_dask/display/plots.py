"""Charts on axes of matplotlib, for notebooks and papers: a `Chart` says what is shown, here as in the report."""

from __future__ import annotations

from typing import Any

from ..errors import InputError
from .charts import Chart


def new_axes() -> Any:
    """Axes of a figure of their own."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise InputError('plots need matplotlib: pip install "pairsym_dask[plot]"') from None
    return plt.subplots(figsize=(6, 4), layout="constrained")[1]


def plot_lines(chart: Chart, ax: Any = None) -> Any:
    """Draw a chart's lines; the axes."""
    ax = ax or new_axes()
    for number, mark in enumerate(chart.marks):
        x, y, _, error = mark.values
        # Lines differ in dashes and marks too, to be told apart in grey.
        style: dict[str, Any] = {"linestyle": ("-", "--", "-.", ":")[number % 4], "marker": "osD^vPX*"[number % 8]}
        style |= {"color": mark.colour, "label": mark.name or None, "markersize": 4}
        if error is None:
            ax.plot(x, y, **style)
        else:
            ax.errorbar(x, y, error, capsize=2, **style)
    if chart.x.log:
        ax.set_xscale("log", base=2)
    ax.set_xlabel(chart.x.label)
    ax.set_ylabel(chart.y.label)
    if any(mark.name for mark in chart.marks):
        ax.legend()
    return ax
