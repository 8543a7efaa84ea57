"""Why an energy is what it is, from draws: in every draw the parts that its user's conditional mean falls into.

Given the items of a draw, a user's [u_i, b_i] is normal with mean P^-1 h_i. With Polya-Gamma weights and censored pairs
at their expectations, h_i is the prior's term, one of each seen item and one of all censored pairs; how far the draw
itself is from that mean is a part of its own, which averages out over draws. All parts are averaged over draws.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from ..store.commit import read_rows
from .draw_tags import centres_of, prior_of
from .draws import DrawPredictor
from .explain import Explanation, Total, explanation_of, seen_of
from .tags import SideTags


def explain(predictor: DrawPredictor, user: int, item: int, n: int, tags: SideTags | None = None) -> Explanation:
    """The parts of the energy of one pair (positions), the n seen items that pull most by name; `tags` of the users."""
    counts = predictor.counts
    seen, count = seen_of(counts, user)
    parts = np.zeros(4)  # the prior's pull, that of tags and of the censored pairs, how far draws are from their mean
    pulls, bias, energies = np.zeros(seen.size), 0.0, np.empty(predictor.size)
    me = predictor.users(np.array([user]))
    for d, commit in enumerate(predictor.commits):
        items, size = predictor.items(d), commit.settings.factors + commit.settings.biases
        z = np.hstack([items.traits, np.ones((len(items.bias), 1))]).astype(np.float64)[:, :size]
        mine = np.append(me.traits[d, 0], me.bias[d, 0]).astype(np.float64)[:size]
        energy = z @ mine + items.bias
        prior = prior_of(commit, "users")
        chosen = read_rows(commit, "users/selection", np.array([user])).reshape(-1) / commit.selected("users").sum()
        rate = (1 + commit.settings.censored_ratio) * counts.total
        censored = rate * (chosen @ items.psi) * expit(-energy)  # E[n'_ij]
        weight = polya_gamma_mean(energy)
        shown = np.zeros(energy.size)
        shown[seen] = count
        square, right = prior.joint()
        precision = square[:size, :size] + (z * ((shown + censored) * weight)[:, None]).T @ z
        direction = np.linalg.solve(precision, z[item])
        along = z @ direction
        # h = prior + sum (c - n') / 2 z - omega b_j z
        pull = count * (0.5 - weight[seen] * items.bias[seen]) * along[seen]
        unseen = float((censored * (-0.5 - weight * items.bias) * along).sum())
        taken, bias = float(right[:size] @ direction), bias + float(items.bias[item])
        tagged = 0.0
        if tags is not None:
            (centre,) = centres_of(commit, "users", tags.prior.of_rows(user, user + 1))
            tagged = float((square @ centre)[:size] @ direction)
        pulls += pull
        energies[d] = energy[item]
        apart = energies[d] - float(items.bias[item]) - taken - tagged - pull.sum() - unseen
        parts += [taken, tagged, unseen, apart]
    taken, tagged, unseen, apart = (parts / predictor.size).tolist()
    first = {"item bias": bias / predictor.size, "other users": taken}
    last = {"censored pairs": unseen, "draws about their mean": apart}
    if tags is not None:
        last = {"user tags": tagged, **last}
    popularity = float(np.mean([np.atleast_2d(predictor.offered(me, d))[0, item] for d in range(predictor.size)]))
    total = Total(float(energies.mean()), float(energies.std()), float(expit(energies).mean()), popularity)
    (who,), (what,) = (
        counts.some_labels(*one).tolist() for one in (("users", user, user + 1), ("items", item, item + 1))
    )
    return explanation_of(counts, (who, what), n, (seen, count, pulls / predictor.size), first, last, total)


def polya_gamma_mean(energy: np.ndarray) -> np.ndarray:
    """Mean of a PolyaGamma(1, a) number, tanh(a / 2) / (2 a)."""
    small = np.abs(energy) < 1e-4
    safe = np.where(small, 1.0, energy)
    return np.asarray(np.where(small, 0.25, np.tanh(safe / 2) / (2 * safe)))
