"""`pairsym report`: one page about a fitted model that needs no network, no script and no plotting library."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from .. import __version__
from ..answers.draws import DrawPredictor
from ..display.cards import facts, figure, page, table
from ..display.charts import Axis, Chart
from ..evaluation.result import Comparison, Evaluation, chart_of_ranks
from ..run.progress import duration
from ..store.commit import Commit
from ..store.counts import Counts
from ..store.lock import holder
from ..store.model_store import commit_key
from .calibrate import Calibration, check_page
from .chain import show_chain, show_draws
from .samples import Name, namer, samples
from .summaries import Summary, extremes, histogram, often_seen, summarise_side
from .tags import show_tags

if TYPE_CHECKING:
    from ..fitted import Fitted

NAMED = 8  # symbols named at each end of the polarising picture


def write_report(
    model: Fitted,
    commit: Commit,
    path: str | os.PathLike[str],
    evaluation: Evaluation | Comparison | None = None,
    titles: Any = None,
    calibration: Calibration | None = None,
) -> None:
    """Write the page about a fitted model to a file."""
    check_page(path).write_text(render(model, commit, evaluation, titles, calibration), encoding="utf-8")


def render(
    model: Fitted,
    commit: Commit,
    evaluation: Evaluation | Comparison | None = None,
    titles: Any = None,
    calibration: Calibration | None = None,
) -> str:
    """The page about a fitted model, opened at a commit; the posterior is read a block at a time."""
    counts, name, predictor = model.counts, namer(titles), getattr(model, "_answering", None)
    bins = {side: histogram(counts, side) for side in ("users", "items")}
    if isinstance(predictor, DrawPredictor):
        fitted = [*show_chain(model), *samples(model, name), *show_draws(predictor, counts)]
    else:
        sides = {side: summarise_side(commit, counts, side, bins[side]) for side in bins}
        fitted = [
            *_fit(model.history, counts),
            *samples(model, name),
            *_polarising(commit, counts, sides["items"], name),
            *_pruning(counts, sides),
            *_uncertainty(commit, sides),
        ]
    parts = [
        f"<h1>{escape(Path(model.path).name)}</h1>",
        *_state(commit),
        *_data(counts, bins),
        *_settings(commit),
        *fitted,
        *show_tags(model, commit),
        *_evaluation(evaluation),
        *(() if calibration is None else calibration.parts()),
        f"<footer>pairsym_dask {__version__}, {datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC, "
        f"{escape(model.path)}</footer>",
    ]
    return page(f"Report on {Path(model.path).name}", "\n".join(parts))


def _state(commit: Commit) -> Iterator[str]:
    """Which sweep this is, and what is known of the fit that it belongs to."""
    when = datetime.datetime.fromtimestamp(commit.storage.entry(commit_key(commit.sweep)).changed, datetime.UTC)
    yield f"<p>Sweep {commit.sweep}, committed {when:%Y-%m-%d %H:%M:%S} UTC.</p>"
    held, begun = holder(commit.storage, reading=True), f"generation-{commit.sweep + 1:05d}-"
    if commit.storage.exists(commit_key(commit.sweep + 1)):
        yield '<p class="note">The store holds later sweeps than this one.</p>'
    elif held is not None and held.alive:
        yield f'<p class="note">The fit is not finished: {escape(str(held))} is at work on the next sweep.</p>'
    elif held is not None or any(name.startswith(begun) for name in commit.storage.folders()):
        yield (
            '<p class="note">The fit is not finished: it was interrupted after this sweep. '
            "Run the same fit again to go on.</p>"
        )
    elif commit.sweep == 0:
        yield '<p class="note">The fit is not finished: this is its start, before any sweep.</p>'


def _data(counts: Counts, bins: dict[str, pd.DataFrame]) -> Iterator[str]:
    users, items = counts.shape
    yield "<h2>Data</h2>"
    yield facts(
        {
            "users x items": f"{users:,} x {items:,}",
            "distinct pairs": f"{counts.nnz:,}",
            "total count D": f"{counts.total:,.10g}",
            "density": f"{counts.nnz / (users * items):.3%}",
            "counts store": counts.path,
            "source": str(counts.record["source"]),
        }
    )
    yield '<div class="row">'
    for side, symbol, colour in (("users", "c_i", 0), ("items", "c_j", 1)):
        found = bins[side]
        seen = found[found["low"] > 0]
        titles = [f"{row.bin}: {row.symbols:,} {side}, {row.total:,.6g} counts" for row in seen.itertuples()]
        chart = Chart(Axis(f"{symbol}, count of {side}", log=True), Axis(side, low=0.0))
        chart.bars(seen["low"], seen["high"], seen["symbols"], titles, colour)
        empty = int(found["symbols"].sum() - seen["symbols"].sum())
        words = f"{side.capitalize()} by count, in powers of two."
        yield figure(chart.svg(), words + (f" {empty:,} {side} have no pair." if empty else ""))
    yield "</div>"


def _settings(commit: Commit) -> Iterator[str]:
    yield "<h2>Settings</h2>"
    yield facts({name: str(value) for name, value in commit.settings.to_dict().items()})


def _fit(history: pd.DataFrame, counts: Counts) -> Iterator[str]:
    yield "<h2>Fit</h2>"
    last, swept = history.iloc[-1], history[history["sweep"] > 0]
    rows = {"bound": f"{last['elbo']:.10g}", "xi*": f"{last['xi_star']:.6g}"}
    if len(swept):
        seconds, median = float(swept["seconds"].sum()), float(swept["seconds"].median())
        rise = swept["elbo"].iloc[-1] - history["elbo"].iloc[-2]
        rows["last sweep"] = f"bound up by {rise:.6g}, {rise / abs(last['elbo']):.1e} of it"
        if rise < 0:
            rows["last sweep"] = f"bound down by {-rise:.6g}, {-rise / abs(last['elbo']):.1e} of it"
        rows["time"] = (
            f"{duration(seconds)} in {len(swept)} sweeps, the median one {duration(median)}: "
            f"{counts.nnz / max(median, 1e-4) / 1e6:.3g} million pairs a second"
        )
    yield facts(rows)
    if len(swept) < 2:
        return
    yield '<div class="row">'
    chart = Chart(Axis("sweep"), Axis("bound"))
    yield figure(
        chart.line(swept["sweep"], swept["elbo"]).svg(),
        "The variational bound after each sweep, from the first on.",
    )
    rises = history["elbo"].diff().iloc[1:]
    chart = Chart(Axis("sweep"), Axis("rise of the bound", log=True))
    yield figure(
        chart.line(swept["sweep"], rises).svg(),
        "What each sweep added, on a logarithmic scale: a fit is done when little is added. "
        + ("Sweeps after which the bound fell have no point." if (rises < 0).any() else ""),
    )
    uneven = bool(swept["seconds"].max() > 10 * swept["seconds"].min())  # a first sweep that compiles dwarfs the others
    seconds_axis = Axis("seconds", log=True) if uneven else Axis("seconds", low=0.0)
    chart = Chart(Axis("sweep"), seconds_axis).line(swept["sweep"], swept["seconds"])
    yield figure(chart.svg(), f"Time of each sweep, its commit included{', on a logarithmic scale' * uneven}.")
    yield "</div>"


def _polarising(commit: Commit, counts: Counts, items: Summary, name: Name) -> Iterator[str]:
    yield "<h2>Popularity and taste of the items</h2>"
    yield (
        "<p>An item that appeals to many tastes has a short trait vector v_j, and its appeal sits in a high bias b_j. "
        "A polarising item has a long vector and a low bias: it is liked by a narrow sliver of tastes.</p>"
    )
    sample = items.sample
    titles = [f"{item}: c {c}, norm {norm}, bias {bias}" for item, c, norm, bias in _rows(sample, counts, name)]
    floor = often_seen(items.bins)
    most, least = extremes(commit, counts, "items", floor, NAMED)
    yield '<div class="row">'
    chart = Chart(Axis("norm of E[v_j]"), Axis("bias b_j")).points(sample["norm"], sample["bias"], titles)
    for found, colour in ((least, 2), (most, 1)):
        chart.names(found["norm"], found["bias"], [name(counts.item_ids[k]) for k in found["position"]], colour)
    yield figure(
        chart.svg(),
        f"Bias against norm. Ringed: the {len(most)} most (orange) and least (green) polarising items with a count of "
        f"at least {floor:g}.",
    )
    for column, label in (("norm", "norm of E[v_j]"), ("bias", "bias b_j"))[: 1 + commit.settings.biases]:
        chart = Chart(Axis("c_j, count of items", log=True), Axis(label)).points(sample["c"], sample[column], titles)
        yield figure(chart.svg(), f"{label[0].upper()}{label[1:]} against popularity.")
    yield "</div>"
    yield '<div class="row">'
    for found, words in ((most, "Most polarising"), (least, "Least polarising")):
        yield f"<div><h3>{words}</h3>{table(['item', 'c_j', 'norm', 'bias'], _rows(found, counts, name))}</div>"
    yield "</div>"
    yield (
        "<p>Ordered by norm less bias, each in its standard deviations, among items with a count of at least "
        f"{floor:g}: rarer ones have short vectors for want of data. Behind a bias stands its posterior standard "
        "deviation.</p>"
    )


def _rows(found: pd.DataFrame, counts: Counts, name: Name) -> list[tuple[str, str, str, str]]:
    """Name, count, norm and bias of some items in words."""
    labels = counts.item_ids[found["position"].to_numpy()]
    numbers = zip(labels, found["c"], found["norm"], found["bias"], found["bias_sd"], strict=True)
    return [(name(label), f"{c:,.6g}", f"{n:.3f}", f"{b:.3f} ± {sd:.3f}") for label, c, n, b, sd in numbers]


def _pruning(counts: Counts, sides: dict[str, Summary]) -> Iterator[str]:
    yield "<h2>Selection and pruning</h2>"
    yield (
        "<p>How often a symbol is selected at all: E[psi_j] and E[pi_i] under the posterior, and its share t_j or s_i "
        "of the censored pairs. Where that share falls below the dashed line of plain frequencies, rare "
        'symbols are pruned, and higher biases make up for it; <code>selection="constant"</code> avoids it.</p>'
    )
    yield '<div class="row">'
    for side, symbol, selected, background in (("items", "c_j", "E[psi]", "t"), ("users", "c_i", "E[pi]", "s")):
        sample = sides[side].sample
        chart = Chart(Axis(f"{symbol}, count of {side}", log=True), Axis("probability", log=True))
        chart.points(sample["c"], sample["background"], name=background, colour=1)
        chart.points(sample["c"], sample["selected"], name=selected)
        seen = np.array([sample.loc[sample["c"] > 0, "c"].min(), sample["c"].max()])
        chart.line(seen, seen / counts.total, name="c/D", colour=2, dashed=True)
        yield figure(chart.svg(), f"{side.capitalize()}: {selected} and {background} against count.")
    yield "</div>"


def _uncertainty(commit: Commit, sides: dict[str, Summary]) -> Iterator[str]:
    yield "<h2>Uncertainty</h2>"
    yield (
        "<p>Posterior standard deviation by count: of the traits (root mean square over factors) and of the bias. The "
        "lines are means over all symbols of a bin, with standard errors where few are in it; the dashed line is the "
        "prior of the traits.</p>"
    )
    yield '<div class="row">'
    for side, symbol in (("items", "c_j"), ("users", "c_i")):
        summary = sides[side]
        bins = summary.bins[summary.bins["low"] > 0]
        middle = np.sqrt(bins["low"] * bins["high"])
        chart = Chart(Axis(f"{symbol}, count of {side}", log=True), Axis("sd", log=True))
        chart.points(summary.sample["c"], summary.sample["trait_sd"])
        chart.level(commit.settings.tau(side) ** -0.5, name="prior", colour=2)
        for column, words, colour in (("trait_sd", "traits", 0), ("bias_sd", "bias", 1))[: 1 + commit.settings.biases]:
            error = np.minimum(bins[f"{column}_se"], 0.9 * bins[column])  # a logarithmic axis has no zero
            chart.line(middle, bins[column], name=words, colour=colour, error=error)
        yield figure(chart.svg(), f"{side.capitalize()}: posterior standard deviation against count.")
    yield "</div>"


def _evaluation(evaluation: Evaluation | Comparison | None) -> Iterator[str]:
    if evaluation is None:
        return
    several = evaluation.evaluations if isinstance(evaluation, Comparison) else {"": evaluation}
    yield "<h2>Evaluation on held-out pairs</h2>"
    yield evaluation._repr_html_()
    words = "The paper's average rank R (1 is best) by count of the user, in powers of two, with standard errors."
    yield figure(chart_of_ranks(several).svg(), words)
    if isinstance(evaluation, Comparison):
        first = next(iter(several))
        yield f"<h3>{escape(first)} by count of the user</h3>{several[first]._repr_html_()}"
