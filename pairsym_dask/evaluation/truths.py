"""Simulation-based calibration: truths drawn from the prior, pairs drawn from them, a fit, and where the truth lies.

If a posterior is exact, the place of the truth among its draws is uniform, and an interval that is to hold 90 % of the
posterior holds the truth in 90 % of cases (Talts et al. 2018). Truths have traits N(0, 1 / tau), biases N(0, 1 / tau_b)
and Dirichlet(alpha) popularities, of each component; pairs are c_ij ~ Poisson(M pi_i psi_j sigma(a_ij)), and the fit is
told the M of each truth by its censored ratio.
"""

from __future__ import annotations

import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
from scipy.special import expit, ndtr
from tqdm import tqdm

from ..answers.draws import DrawPredictor, open_predictor
from ..answers.predict import energy_of_pairs
from ..options import seed, whole_number
from ..pairs.ingest import ingest
from ..sampler.chain import sample
from ..settings import Settings
from ..store.counts import Counts
from ..store.model_store import ModelStore
from ..sweep.fit import fit
from .measures import exponents

USERS, ITEMS = 60, 8  # of a truth, whose energies are looked at
QUANTITIES = ("energy", "difference", "p(j | i)")
BINS = 10


@dataclass(frozen=True, repr=False)
class Places:
    """Where truths lie in their posteriors.

    `frame` has a row a truth, quantity and pair: truth, quantity, count (of the item), place (the posterior's
    probability of less than the truth: uniform if all is well).
    """

    frame: pd.DataFrame
    settings: Settings
    truths: int

    def coverage(self, interval: float = 0.9, by: str | None = None) -> pd.DataFrame:
        """How often central intervals held the truth, by quantity; `by="count"` also by count in powers of two."""
        held = (self.frame["place"] - 0.5).abs() <= interval / 2
        frame = self.frame.assign(held=held, count=2.0 ** exponents(self.frame["count"].to_numpy()))
        keys = ["quantity"] if by is None else ["quantity", by]
        per = frame.groupby(["truth", *keys], sort=False)["held"].mean().reset_index()
        found = per.groupby(keys, sort=False)["held"].agg(["mean", "sem"]).reset_index()
        return found.rename(columns={"mean": "held", "sem": "error"})

    def histogram(self, quantity: str) -> np.ndarray:
        """Shares of places in ten equal bins: each a tenth if all is well."""
        place = self.frame.loc[self.frame["quantity"] == quantity, "place"]
        return np.asarray(np.histogram(place, BINS, (0, 1))[0] / max(len(place), 1))

    def __repr__(self) -> str:
        table = self.coverage().to_string(index=False, float_format="{:.3f}".format)
        return f"90 % intervals that hold the truth, {self.truths} truths\n{table}"


def find_places(
    settings: Settings,
    *,
    truths: int = 10,
    users: int = 200,
    items: int = 50,
    pairs: int = 6_000,
    sweeps: int | None = None,
    random_state: int = 0,
    progress: bool = False,
) -> Places:
    """Draw truths, fit to pairs of each, and find where the truth lies in the posterior."""
    truths, users, items = (
        whole_number(name, value, least=least)
        for name, value, least in (("truths", truths, 1), ("users", users, 2), ("items", items, 2))
    )
    pairs = whole_number("pairs", pairs, least=1)
    sweeps = (400 if settings.inference == "gibbs" else 40) if sweeps is None else whole_number("sweeps", sweeps, 4)
    frames = []
    for truth in tqdm(range(truths), desc="truths", disable=None if progress else True):
        rng = np.random.default_rng([seed(random_state), truth])
        with tempfile.TemporaryDirectory(prefix="pairsym-calibrate-") as folder:
            frames.append(_one(settings, (users, items, pairs), sweeps, Path(folder), rng).assign(truth=truth))
    return Places(pd.concat(frames, ignore_index=True), settings, truths)


def _one(
    settings: Settings, shape: tuple[int, int, int], sweeps: int, folder: Path, rng: np.random.Generator
) -> pd.DataFrame:
    """The places of one truth."""
    users, items, pairs = shape
    u, v = (
        rng.standard_normal((n, settings.factors)) * tau**-0.5
        for n, tau in ((users, settings.tau_u), (items, settings.tau_v))
    )
    b, e = (settings.biases * rng.standard_normal(n) * settings.tau_b**-0.5 for n in (users, items))
    # sum_n rho_n pi_in psi_jn
    pi = rng.dirichlet(np.full(users * settings.components, settings.alpha)).reshape(users, -1)
    psi = np.stack([rng.dirichlet(np.full(items, settings.alpha)) for _ in range(settings.components)])
    energy, offered = u @ v.T + b[:, None] + e, pi @ psi
    share = offered * expit(energy)
    rate = pairs / share.sum()
    matrix = rng.poisson(rate * share)
    while not 0 < matrix.sum() < rate:  # of a few pairs that are nearly all shown, more may be drawn than were selected
        matrix = rng.poisson(rate * share)
    counts = ingest(scipy.sparse.csr_array(matrix), folder / "counts.zarr")
    given = Settings(
        **settings.to_dict() | {"censored_ratio": rate / matrix.sum() - 1, "random_state": int(rng.integers(2**32))}
    )
    store = ModelStore(folder / "model.zarr")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the chain has not settled")
        if given.inference == "gibbs":
            sample(counts, given, store, sweeps=sweeps, thin=2)
        else:
            fit(counts, given, store, sweeps=sweeps)
    return _look(store, counts, energy, offered, matrix.sum(0), rng)


def _look(
    store: ModelStore, counts: Counts, energy: np.ndarray, offered: np.ndarray, marginal: np.ndarray,
    rng: np.random.Generator,
) -> pd.DataFrame:  # fmt: skip
    """Places of some pairs' energies, of their differences, and of p(j | i)."""
    predictor: Any = open_predictor(store.commits(), counts)
    rows = np.repeat(rng.choice(energy.shape[0], min(USERS, energy.shape[0]), replace=False), ITEMS)
    one, two = rng.integers(0, energy.shape[1], (2, rows.size))
    exact = expit(energy) * offered
    exact /= exact.sum(1, keepdims=True)
    true = {"energy": energy[rows, one], "difference": energy[rows, one] - energy[rows, two]}
    true["p(j | i)"] = exact[rows, one]
    users = predictor.users(rows)
    found: dict[str, np.ndarray] = {}
    if isinstance(predictor, DrawPredictor):
        a = predictor.energy_of_pairs(users, one)
        p = np.empty_like(a)
        for draw in range(predictor.size):
            shown = expit(predictor.energy(users, draw).astype(np.float64)) * predictor.offered(users, draw)
            p[draw] = shown[np.arange(rows.size), one] / shown.sum(1)
        drawn = {"energy": a, "difference": a - predictor.energy_of_pairs(users, two), "p(j | i)": p}
        for name, values in drawn.items():
            # The middle of the gap between draws that the truth falls into.
            found[name] = ((values < true[name]).sum(0) + 0.5) / (predictor.size + 1)
    else:
        mean, variance = energy_of_pairs(users, predictor.items.take(one))
        found["energy"] = ndtr((true["energy"] - mean) / np.sqrt(variance))
        apart = predictor.contrast(users, one, two, 0.9)
        found["difference"] = ndtr((true["difference"] - apart["difference"]) / np.maximum(apart["sd"], 1e-12))
    different = one != two
    frames = [
        pd.DataFrame({"quantity": name, "count": marginal[one], "place": found[name]})[
            different if name == "difference" else slice(None)
        ]
        for name in QUANTITIES
        if name in found
    ]
    return pd.concat(frames, ignore_index=True)
