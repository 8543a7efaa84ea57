"""`ps.calibrate` and `pairsym calibrate`: can intervals and probabilities be taken at their word? With pictures."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ..display.cards import facts, figure, page, table
from ..display.charts import GREY, Axis, Chart
from ..errors import InputError
from ..evaluation.reliability import FIRST, Reliability, reliability
from ..evaluation.truths import BINS, Places, find_places
from ..settings import Settings

if TYPE_CHECKING:
    from ..fitted import Fitted

TRUTHS = 10
SEEN = 1e-3  # share of the pairs that a bin of a picture has at least


@dataclass(frozen=True, repr=False)
class Calibration:
    """What `calibrate` found: `places` of simulated truths, `reliability` on held-out pairs; either may be None."""

    places: Places | None
    reliability: Reliability | None

    def __repr__(self) -> str:
        return "\n\n".join(str(part) for part in (self.places, self.reliability) if part is not None)

    def _repr_html_(self) -> str:
        return "\n".join(self.parts())

    def parts(self) -> Iterator[str]:
        """The sections of a page."""
        if self.places is not None:
            yield from show_places(self.places)
        if self.reliability is not None:
            yield from show_reliability(self.reliability)

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write one HTML page with pictures to a file."""
        place = check_page(path)
        body = "\n".join(["<h1>Calibration</h1>", *self.parts()])
        place.write_text(page("Calibration", body), encoding="utf-8")


def check_page(path: str | os.PathLike[str]) -> Path:
    """Where a page is to be written."""
    place = Path(path)
    if place.is_dir() or not place.parent.is_dir():
        raise InputError(f"{path} is a folder, or its folder is not there; give the name of a file to write")
    return place


def calibrate(
    model: Fitted,
    held_out: pd.DataFrame | None = None,
    *,
    truths: int | None = None,
    users: int = 200,
    items: int = 50,
    pairs: int = 6_000,
    sweeps: int | None = None,
    level: float = 0.9,
    random_state: int = 0,
    progress: bool = False,
) -> Calibration:
    """Whether a model's intervals hold the truth, and whether its probabilities are met on held-out pairs.

    Parameters
    ----------
    model : PairedSymbols
        Its settings are those of the fits to truths; with held-out pairs it must be fitted.
    held_out : pandas.DataFrame, optional
        Pairs, columns user and item: do p(j | i) and the shares of the pairs agree?
    truths : int, optional
        Truths to draw from the prior and to fit; 10 by default, none where there are held-out pairs.
    users, items, pairs : int
        Size of a truth, its pairs about.
    sweeps : int, optional
        Sweeps of a fit to a truth; 40 by default, for draws 400.
    level : float
        How long must a list be to hold the next item with this probability?
    random_state : int
        Seed of truths, and of the users that lists are sized on.
    progress : bool
        Show a bar over truths on a terminal.

    Returns
    -------
    Calibration
        `places` of the truths in their posteriors and `reliability` on held-out pairs; `report(path)` writes a page.

    Examples
    --------
    >>> found = ps.calibrate(ps.PairedSymbols(factors=1), truths=1, users=20, items=5, pairs=100, sweeps=4)
    >>> found.places.coverage()["quantity"].tolist()
    ['energy', 'difference']
    """
    judged = None if held_out is None else reliability(model, held_out, level=level, random_state=random_state)
    wanted = (TRUTHS if judged is None else 0) if truths is None else truths
    places = None
    if wanted:
        places = find_places(
            Settings(**model.get_params()), truths=wanted, users=users, items=items, pairs=pairs, sweeps=sweeps,
            random_state=random_state, progress=progress,
        )  # fmt: skip
    return Calibration(places, judged)


def show_places(places: Places) -> Iterator[str]:
    """The section about simulated truths."""
    settings = places.settings
    yield "<h2>Where simulated truths lie in their posteriors</h2>"
    yield (
        f"<p>{places.truths} truths were drawn from the prior and pairs from each. If the posterior is exact, a truth "
        "lies anywhere in it with the same chance: bars are level, and 90 % intervals hold 90 %. Bars that are high at "
        "both ends belong to intervals that are too narrow, a hill in the middle to ones that are too wide.</p>"
    )
    if settings.inference == "gibbs" and settings.hyperpriors:
        yield "<p>Truths have the priors of the taus, while the fit learns its priors from the pairs.</p>"
    covered = places.coverage()
    rows = [
        (str(name), f"{held:.1%}", "" if np.isnan(error) else f"{error:.1%}")
        for name, held, error in zip(covered["quantity"], covered["held"], covered["error"], strict=True)
    ]
    yield table(["90 % intervals of", "hold the truth", "standard error"], rows)
    yield '<div class="row">'
    edges = np.arange(BINS + 1) / BINS
    for name in places.frame["quantity"].unique():
        shares = places.histogram(name)
        titles = [f"{low:.1f} to {low + 1 / BINS:.1f}: {share:.3f}" for low, share in zip(edges, shares, strict=False)]
        chart = Chart(Axis("place of the truth in the posterior"), Axis("share of pairs", low=0.0))
        chart.bars(edges[:-1], edges[1:], shares, titles).level(1 / BINS, name="exact", colour=GREY)
        yield figure(chart.svg(), f"Places of the true {name}.")
    chart = Chart(Axis("count of the item", log=True), Axis("hold the truth", low=0.0, high=1.0))
    by_count = places.coverage(by="count")
    for colour, name in enumerate(by_count["quantity"].unique()):
        part = by_count[(by_count["quantity"] == name) & (by_count["count"] >= 1)].sort_values("count")
        chart.line(part["count"], part["held"], name=name, colour=colour, error=part["error"])
    chart.level(0.9, colour=GREY)
    yield figure(chart.svg(), "How often 90 % intervals hold the truth, by count of the item.")
    yield "</div>"


def show_reliability(found: Reliability) -> Iterator[str]:
    """The section about held-out pairs."""
    yield "<h2>Probabilities against held-out pairs</h2>"
    yield (
        "<p>p(j | i) among the items that a user has not been seen with, in bins: which share of the held-out pairs "
        "was predicted to fall into each, and which share did. The calibration error (ECE) is the sum of the "
        "differences.</p>"
    )
    yield facts(
        {
            "held-out pairs": f"{found.pairs:,}",
            "ECE": f"{found.ece:.4f}",
            f"ECE, first {FIRST}": f"{found.ece_first:.4f}",
            f"in the first {FIRST}": (
                f"{found.first['observed'].sum():.4f}, predicted {found.first['predicted'].sum():.4f}"
            ),
        }
    )
    yield '<div class="row">'
    for bins, words in ((found.bins, "all unseen items"), (found.first, f"each user's first {FIRST} items")):
        yield figure(
            _shares(bins).svg(), f"Predicted (line) and observed (bars) shares of the held-out pairs, {words}."
        )
    chart = Chart(Axis("predicted p(j | i)", log=True), Axis("observed", log=True))
    bins = found.bins[(found.bins["observed"] > 0) & (found.bins["cells"] > 0)]
    # A bin's cells share its pairs: what was observed of each, over what was predicted.
    middle = np.sqrt(bins["low"] * bins["high"])
    error = np.sqrt(bins["observed"] / found.pairs)
    ratio, ratio_error = bins["observed"] / bins["predicted"], error / bins["predicted"]
    chart.line(middle, middle, name="exact", colour=GREY, dashed=True)
    chart.line(middle, middle * ratio, error=np.minimum(middle * ratio_error, 0.9 * middle * ratio))
    yield figure(chart.svg(), "Reliability: how often cells of a predicted probability were met, with standard errors.")
    yield "</div>"
    columns = (found.lists[name] for name in ("list", "length", "held"))
    rows = [(str(name), f"{length:.1f}", f"{held:.1%}") for name, length, held in zip(*columns, strict=True)]
    yield f"<h3>Lists that hold the next item with {100 * found.level:g} %</h3>"
    yield table(["list", "mean length", "held the item"], rows)
    yield "<p>Sized on one half of the users, judged on the other.</p>"


def _shares(bins: pd.DataFrame) -> Chart:
    """Predicted and observed shares by bin, those left out that hold next to nothing."""
    bins = bins[bins[["predicted", "observed"]].max(axis=1) > SEEN]
    middle = np.sqrt(bins["low"] * bins["high"])
    chart = Chart(Axis("p(j | i)", log=True), Axis("share of pairs", low=0.0))
    rows = bins[["low", "high", "observed"]].to_numpy()
    titles = [f"p {low:.2g} to {high:.2g}: {share:.4f}" for low, high, share in rows]
    chart.bars(bins["low"], bins["high"], bins["observed"], titles)
    return chart.line(middle, bins["predicted"], name="predicted", colour=1)
