"""A few numbers a symbol for pictures of a posterior, gathered a block at a time: no array is ever held whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ..evaluation.measures import bin_name, exponents
from ..store.commit import Commit, read_rows
from ..store.counts import Counts

POINTS = 2000  # symbols of a side that are drawn one by one
_MEANS = ("trait_sd", "bias_sd")


@dataclass(frozen=True)
class Summary:
    """One side of a fitted model.

    `bins` has a row a bin of the symbols' counts, in powers of two: bin, low, high, symbols, total, and the means of
    trait_sd and bias_sd over all its symbols, with their standard errors (trait_sd_se, bias_sd_se). `sample` has a row
    a drawn symbol, about as many from every bin:
    position, c (its count), norm (of its mean trait vector), bias, trait_sd (root mean square over factors), bias_sd,
    selected (E[pi] or E[psi]), background (s or t).
    """

    bins: pd.DataFrame
    sample: pd.DataFrame


def histogram(counts: Counts, side: str) -> pd.DataFrame:
    """Symbols of a side by count, in powers of two: exponent, bin, low, high, symbols, total."""
    parts = []
    for block in range(counts.cuts[side].blocks):
        c = counts.marginal(side, block)
        parts.append(pd.DataFrame({"exponent": exponents(c), "symbols": 1, "total": c}).groupby("exponent").sum())
    bins = pd.concat(parts).groupby("exponent").sum().reset_index()
    low = np.where(bins["total"] > 0, 2.0 ** np.maximum(bins["exponent"], -1074), 0.0)
    whole = np.dtype(counts.layout.count_dtype).kind == "u"
    names = [bin_name(float(value), whole) for value in low]
    return bins.assign(bin=names, low=low, high=np.where(low > 0, 2 * low, 1.0))


def blocks(commit: Commit, counts: Counts, side: str) -> Iterator[pd.DataFrame]:
    """The columns of `Summary.sample` of all symbols, a block of the counts store at a time."""
    for block in range(counts.cuts[side].blocks):
        positions = np.arange(*counts.cuts[side].row_range(block))

        def read(name: str, positions: np.ndarray = positions) -> np.ndarray:
            return read_rows(commit, f"{side}/{name}", positions).astype(np.float64)

        yield pd.DataFrame(
            {
                "position": positions,
                "c": counts.marginal(side, block),
                "norm": np.sqrt((read("mean") ** 2).sum(1)),
                "bias": read("bias"),
                "trait_sd": np.sqrt((1 / read("precision")).mean(1)),
                "bias_sd": np.sqrt(1 / read("bias_precision")),
                "selected": read("selection"),
                "background": read("background"),
            }
        )


def summarise_side(commit: Commit, counts: Counts, side: str, bins: pd.DataFrame, points: int = POINTS) -> Summary:
    """Bins and a seeded sample of a side; `bins` is its `histogram`."""
    share = -(-points // len(bins)) if bins["symbols"].sum() > points else points
    generator = np.random.default_rng(0)
    chosen: pd.DataFrame | None = None
    sums, selected = [], 0.0
    for part in blocks(commit, counts, side):
        selected += float(part["selected"].sum())
        part["exponent"], part["lot"] = exponents(part["c"].to_numpy()), generator.random(len(part))
        squares = part[list(_MEANS)].pow(2).add_suffix("_squares")
        values = pd.concat([part[[*_MEANS, "exponent"]], squares], axis=1)
        sums.append(values.groupby("exponent").sum())
        # The symbols with the smallest lots of every bin so far.
        both = part if chosen is None else pd.concat([chosen, part])
        chosen = both.sort_values("lot").groupby("exponent").head(share)
    assert chosen is not None  # a store has symbols
    symbols = bins.set_index("exponent")["symbols"]
    means = pd.concat(sums).groupby("exponent").sum().div(symbols, axis=0)
    for name in _MEANS:
        variance = (means.pop(f"{name}_squares") - means[name] ** 2).clip(lower=0)
        means[f"{name}_se"] = np.sqrt(variance / (symbols - 1).clip(lower=1))
    sample = chosen.drop(columns=["exponent", "lot"]).sort_values("position", ignore_index=True)
    sample["selected"] /= selected
    return Summary(bins.merge(means.reset_index(), on="exponent"), sample)


def often_seen(bins: pd.DataFrame) -> float:
    """The count from which on a symbol belongs to the best observed quarter, to the bin."""
    order = bins[bins["low"] > 0].sort_values("low", ascending=False)
    enough = order["symbols"].cumsum() >= order["symbols"].sum() / 4
    return float(order.loc[enough, "low"].iloc[0])


def extremes(commit: Commit, counts: Counts, side: str, floor: float, n: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The n most and the n least polarising symbols with a count of at least `floor`: columns of `blocks` and score.

    The score is the paper's reading in one number: norm less bias, each in its standard deviations; polarising symbols
    have a large norm and a low bias.
    """
    moments = np.zeros((2, 3))  # of norm and bias: number, sum, sum of squares
    for part in blocks(commit, counts, side):
        values = part.loc[part["c"] >= floor, ["norm", "bias"]].to_numpy().T
        moments += np.stack([np.full(2, values.shape[1]), values.sum(1), (values**2).sum(1)], axis=1)
    n = max(1, min(n, int(moments[0, 0]) // 2))  # no symbol stands at both ends, unless it is the only one
    mean = moments[:, 1] / moments[:, 0]
    sd = np.sqrt(np.maximum(moments[:, 2] / moments[:, 0] - mean**2, 0))
    sd[sd == 0] = 1.0
    most, least = pd.DataFrame(), pd.DataFrame()
    for part in blocks(commit, counts, side):
        found = part[part["c"] >= floor]
        z = (found[["norm", "bias"]].to_numpy() - mean) / sd
        found = found.assign(score=z[:, 0] - z[:, 1])
        most = pd.concat([most, found]).nlargest(n, "score")
        least = pd.concat([least, found]).nsmallest(n, "score")
    return most, least
