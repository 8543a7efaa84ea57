"""Kernels of shifts: moves along selection e^-t, energies + t, the direction in which half-sweeps alone walk slowly.

Where sigma is small, M pi_i psi_j sigma(a_ij) hardly changes along it, but the censored pairs that a half-sweep holds
while it draws psi, v and b tie them to where they are. A shift is a Metropolis step with censored pairs of its own: a
symbol whose selection s may become s' = s e^-t gets pairs by thinning proposals at the larger of both rates R, which
leaves Poisson(R - rate sigma(a)) of them, and both ends weigh the same pairs by their own chances:

    prod (s' sigma(a') / (s sigma(a)))^c  prod over censored (R - s' sigma(a')) / (R - s sigma(a)).

a' = a + t g: bias and traits take the step together, along the line that costs their prior least, so that g is one on
average over the other side's symbols.

R does not change when s and s' change places, so the step is reversible. Symbols move in twos whose selection together
stays: what is selected sums to one, and all twos of a side can move at once.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .accelerate import compiled, inlined
from .draws import CENSORED, CHUNK, ENERGY, _energies, _fill_left, _work_size
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

    Steps do not depend on traits and biases, and their distribution is the same seen from both ends: a normal number
    on the scale of the log odds of two rows' selection, as wide as their counts let expect, times a random factor.
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
    match: Any, key: Any, first: int, steps: Any, ratios: Any, alpha: float, effects: Any, mean: float,
    precision: float,
) -> None:
    """Put steps that are not accepted to 0; `ratios` are log ratios of the rows' pairs.

    The rest of the ratio is that of Dirichlet and normal priors: `effects` are what steps are added to, `mean` and
    `precision` those of their prior.
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
            t = steps[q]
            # (selection)^alpha N(effect | mean, 1 / precision)
            ratio += ratios[q] - alpha * t - precision * t * (effects[q] - mean + 0.5 * t)
        if not math.log(uniform(stream)) < ratio:
            steps[r], steps[p] = 0.0, 0.0
    keep(words)


@compiled
def measure_rows(table: Any, width: int, weights: Any, out: Any) -> None:
    """Products of the rows of a draw table with some weights, in float64."""
    for i in range(out.size):
        total = 0.0
        for k in range(weights.size):
            total += np.float64(table[i * width + k]) * weights[k]
        out[i] = total


@inlined
def _hidden(energy: float) -> float:
    """1 - sigma(a)."""
    e = math.exp(-abs(energy))
    return (e if energy > 0.0 else 1.0) / (1.0 + e)


@inlined
def _log_shown(energy: float) -> float:
    """log sigma(a)."""
    return min(energy, 0.0) - math.log1p(math.exp(-abs(energy)))


@compiled
def weigh_shifts(
    key: Any, first: int, rates: Any, indptr: Any, indices: Any, counts: Any, kept: Any, alias: Any, own: Any,
    table: Any, factors: int, steps: Any, leans: Any, of_rows: bool, out: Any,
) -> None:
    """Add the log ratios of the pairs of rows `first + r` to `out`, by row or by column, whichever side `steps` is of.

    `leans` are g of the other side. `rates` are expected proposals and `kept`, `alias` the columns' alias table, of the
    larger of both selections for the side that shifts. All else is as in `add_own_pairs`.
    """
    rows = rates.size
    width = own.size // max(rows, 1)
    words, scratch = np.empty(STREAM, np.uint64), np.zeros(_work_size(width), table.dtype)
    chunk = np.empty(CHUNK, np.int64)
    stream, work, columns = pointer(words), aligned(scratch), pointer(chunk)
    own_, table_ = pointer(own), pointer(table)
    shrunk = np.empty(steps.size)  # e^-|t|
    for k in range(steps.size):
        shrunk[k] = math.exp(-abs(steps[k]))
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
                column = get(columns, q)
                at = r if of_rows else column
                t, less = steps[at], shrunk[at]
                hidden = max(np.float64(get(work, CENSORED + q)), LEAST)
                # s / R and s' / R: one of them is one
                before, after = (1.0, less) if t > 0.0 else (less, 1.0)
                if q >= seen and uniform(stream) >= hidden + (1.0 - before) * (1.0 - hidden):
                    continue
                energy = np.float64(get(work, ENERGY + q))
                moved = energy + t * leans[column if of_rows else r]
                if q < seen:
                    # s' sigma(a') / (s sigma(a))
                    out[at] += np.float64(counts[p + q]) * (_log_shown(moved) - _log_shown(energy) - t)
                else:
                    new = _hidden(moved)
                    # (R - s' sigma') / (R - s sigma) over R
                    here, there = hidden + (1.0 - before) * (1.0 - hidden), new + (1.0 - after) * (1.0 - new)
                    out[at] += math.log(max(there, LEAST) / here)
            p += seen
            waiting -= proposed
    keep(words)
    keep(scratch)
    keep(chunk)
