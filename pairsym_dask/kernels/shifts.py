"""Kernels of shifts: moves along selection e^-t, bias + t, the direction in which half-sweeps alone walk slowly.

Where sigma is small, M pi_i psi_j sigma(a_ij) hardly changes along it, but the censored pairs that a half-sweep holds
while it draws psi and b tie both to where they are. A shift is a Metropolis step with censored pairs of its own: a
symbol whose selection s may become s' = s e^-t gets pairs by thinning proposals at the larger of both rates R, which
leaves Poisson(R - rate sigma(a)) of them, and both ends weigh the same pairs by their own chances:

    prod (s' sigma(a + t) / (s sigma(a)))^c  prod over censored (R - s' sigma(a + t)) / (R - s sigma(a)).

R does not change when s and s' change places, so the step is reversible. Symbols move in twos whose selection together
stays: what is selected sums to one, and all twos of a side can move at once.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .accelerate import compiled, inlined
from .draws import CENSORED, CHUNK, _energies, _fill_left, _work_size
from .simd import aligned, get, keep, pointer, put
from .streams import STREAM, begin_stream, normal, poisson, uniform

SPREAD = 4.0  # a step is between a SPREAD-th of the expected width and SPREAD times it
KNOWN = 0.1  # what a pair tells of t: about sigma^2
LEAST = 1e-30

# fmt: off


@inlined
def _partner(turn: int, row: int, rows: int) -> int:
    """Rows are reflected at a point that changes from sweep to sweep; one or two rows may stand alone."""
    return (turn - row) % rows


@compiled
def propose_shifts(match: Any, key: Any, first: int, counts: Any, selection: Any, out: Any) -> None:
    """Steps t of the rows of a group, whose streams begin at `first`; 0 for a row without a partner.

    Steps do not depend on biases, and their distribution is the same seen from both ends: a normal number on the scale
    of the log odds of two rows' selection, as wide as their counts let expect, times a random factor.
    """
    rows = counts.size
    words = np.empty(STREAM, np.uint64)
    stream = pointer(words)
    begin_stream(stream, match, first)
    turn = int(uniform(stream) * rows)
    for r in range(rows):
        p = _partner(turn, r, rows)
        if p == r:
            out[r] = 0.0
        if p <= r:
            continue
        begin_stream(stream, key, first + r)
        width = SPREAD ** (2.0 * uniform(stream) - 1.0) / math.sqrt(1.0 + KNOWN * min(counts[r], counts[p]))
        change = math.exp(width * normal(stream))
        one, two = selection[r], selection[p]
        share = (one * change + two) / (one + two)
        out[r] = math.log(share / change)
        out[p] = math.log(share)
    keep(words)


@compiled
def accept_shifts(
    match: Any, key: Any, first: int, steps: Any, weights: Any, alpha: float, bias: Any, mean: float, precision: float
) -> None:
    """Put steps that are not accepted to 0; `weights` are log ratios of the rows' pairs, `mean` and `precision` the
    biases' prior. The rest of the ratio is that of Dirichlet and normal priors, for log selection and bias.
    """
    rows = steps.size
    words = np.empty(STREAM, np.uint64)
    stream = pointer(words)
    begin_stream(stream, match, first)
    turn = int(uniform(stream) * rows)
    for r in range(rows):
        p = _partner(turn, r, rows)
        if p <= r:
            continue
        begin_stream(stream, key, first + r)
        ratio = 0.0
        for q in (r, p):
            t, b = steps[q], np.float64(bias[q])
            # (selection)^alpha N(b | mean, 1 / precision)
            ratio += weights[q] - alpha * t - precision * t * (b - mean + 0.5 * t)
        if not math.log(uniform(stream)) < ratio:
            steps[r], steps[p] = 0.0, 0.0
    keep(words)


@inlined
def _log_ratio(shown: float, hidden: float, growth: float) -> float:
    """Log ratio of the chances of a censored pair: growth = e^t - 1, shown = sigma(a), hidden = 1 - sigma(a)."""
    if growth > 0.0:
        return math.log((hidden + shown * growth) / (max(hidden, LEAST) * (1.0 + shown * growth)))
    return math.log(max(hidden, LEAST) / ((hidden - shown * growth) * (1.0 + shown * growth)))


@compiled
def weigh_shifts(
    key: Any, first: int, rates: Any, indptr: Any, indices: Any, counts: Any, kept: Any, alias: Any, own: Any,
    table: Any, factors: int, steps: Any, of_rows: bool, out: Any,
) -> None:
    """Add the log ratios of the pairs of rows `first + r` to `out`, by row or by column, whichever side `steps` is of.

    `rates` are expected proposals and `kept`, `alias` the columns' alias table, of the larger of both selections for
    the side that shifts. All else is as in `add_own_pairs`.
    """
    rows = rates.size
    width = own.size // max(rows, 1)
    words, scratch = np.empty(STREAM, np.uint64), np.zeros(_work_size(width), table.dtype)
    chunk = np.empty(CHUNK, np.int64)
    stream, work, columns = pointer(words), aligned(scratch), pointer(chunk)
    own_, table_ = pointer(own), pointer(table)
    growths = np.empty(steps.size)  # e^t - 1
    for k in range(steps.size):
        growths[k] = math.expm1(steps[k])
    for r in range(rows):
        if of_rows and steps[r] == 0.0:
            continue
        begin_stream(stream, key, first + r)
        waiting = poisson(stream, rates[r])
        _fill_left(own_, r * width, factors, width, work)
        p, stop = indptr[r], indptr[r + 1]
        while p < stop or waiting > 0:
            seen = min(CHUNK, stop - p)
            proposed = min(CHUNK - seen, waiting)
            for q in range(seen):
                put(columns, q, np.int64(indices[p + q]))
            for q in range(seen, seen + proposed):
                place = uniform(stream) * kept.size
                j: Any = np.int64(place)
                if place - j >= kept[j]:
                    j = np.int64(alias[j])
                put(columns, q, j)
            _energies(table_, width, columns, seen + proposed, work)
            for q in range(seen + proposed):
                at = r if of_rows else get(columns, q)
                growth, hidden = growths[at], np.float64(get(work, CENSORED + q))
                shown = 1.0 - hidden
                if q < seen:
                    # s' sigma(a + t) / (s sigma(a)) = 1 / (1 + sigma(a) (e^t - 1))
                    out[at] -= np.float64(counts[p + q]) * math.log1p(shown * growth)
                elif uniform(stream) < hidden - shown * min(growth, 0.0):
                    out[at] += _log_ratio(shown, hidden, growth)
            p += seen
            waiting -= proposed
    keep(words)
    keep(scratch)
    keep(chunk)
