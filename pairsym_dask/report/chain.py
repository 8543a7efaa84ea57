"""What a report says of a chain: its traces and whether they have settled, popularity, and how wide energies are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ..answers.draws import DrawPredictor
from ..display.cards import facts, figure, table
from ..display.charts import Axis, Chart
from ..evaluation.measures import exponents
from ..run.progress import duration
from ..store.counts import Counts

if TYPE_CHECKING:
    from ..fitted import Fitted

PAIRS = 1500  # whose energies are drawn one by one


def show_chain(model: Fitted) -> Iterator[str]:
    """The section about the chain: how far, how long, has it settled."""
    history, draws, diagnostics = model.history, model.draws, model.diagnostics
    swept = history[history["sweep"] > 0]
    seconds, median = float(swept["seconds"].sum()), float(swept["seconds"].median())
    yield "<h2>Chain</h2>"
    yield facts(
        {
            "sweeps": f"{len(swept)} in {duration(seconds)}, the median one {duration(median)}",
            "draws": f"{len(draws)}, from sweep {draws['sweep'].iloc[0]} on",
            "log p(i, j)": f"{diagnostics['mean'].iloc[0]:.5g} after burn-in",
            "largest split R-hat": f"{diagnostics['r_hat'].max():.3f} (1 is settled)",
        }
    )
    yield '<div class="row">'
    chart = Chart(Axis("sweep"), Axis("log p(i, j)")).line(swept["sweep"], swept["log_likelihood"])
    yield figure(chart.svg(), "The log-likelihood of a pair, sweep by sweep: a chain that has settled goes nowhere.")
    chart = Chart(Axis("sweep"), Axis("share shown", low=0.0)).line(swept["sweep"], swept["shown"])
    yield figure(chart.svg(), "Share of the selected pairs that are shown, not censored.")
    rows = [
        (str(name), f"{mean:.4g}", f"{sd:.3g}", f"{r_hat:.3f}", f"{effective:.0f}")
        for name, mean, sd, r_hat, effective in diagnostics[
            ["quantity", "mean", "sd", "r_hat", "effective"]
        ].itertuples(index=False)
    ]
    yield f"<div><h3>Traces after burn-in</h3>{table(['quantity', 'mean', 'sd', 'R-hat', 'effective'], rows)}</div>"
    yield "</div>"


def show_draws(predictor: DrawPredictor, counts: Counts) -> Iterator[str]:
    """The sections about popularity and uncertainty, from a seeded sample of symbols."""
    rng = np.random.default_rng(0)
    users, items = (rng.choice(n, min(PAIRS, n), replace=False) for n in counts.shape)
    marginal = counts.marginal("items")
    psi = np.stack([predictor.items(draw).popularity[items] for draw in range(predictor.size)])
    yield "<h2>Popularity</h2>"
    yield '<div class="row">'
    chart = Chart(Axis("c_j, count of items", log=True), Axis("E[psi]", log=True))
    chart.points(marginal[items], psi.mean(0))
    seen = np.array([max(marginal[items].min(), 1), marginal[items].max()])
    chart.line(seen, seen / counts.total, name="c/D", colour=2, dashed=True)
    yield figure(chart.svg(), "How often an item is selected at all, against its count.")
    chart = Chart(Axis("c_j, count of items", log=True), Axis("sd / mean of psi", low=0.0))
    chart.points(marginal[items], psi.std(0) / psi.mean(0))
    yield figure(chart.svg(), "How sure the draws are of it.")
    yield "</div>"
    yield "<h2>Uncertainty</h2>"
    yield (
        "<p>The spread over draws of energies of pairs taken at random, and of differences of two items for a user: "
        "what is known best of the rarest symbols is little.</p>"
    )
    rows, columns, others = (rng.choice(some, PAIRS) for some in (users, items, items))
    drawn = predictor.users(rows)
    one, two = (predictor.energy_of_pairs(drawn, which) for which in (columns, others))
    yield '<div class="row">'
    for values, words in ((one.std(0), "energy"), ((one - two).std(0), "difference of two energies")):
        chart = Chart(Axis("c_j, count of items", log=True), Axis("sd", low=0.0))
        chart.points(marginal[columns], values)
        means = pd.Series(values).groupby(exponents(marginal[columns])).mean()
        chart.line(2.0 ** (means.index.to_numpy() + 0.5), means.to_numpy(), name="mean", colour=1)
        yield figure(chart.svg(), f"Standard deviation of the {words} over draws, against the item's count.")
    yield "</div>"
