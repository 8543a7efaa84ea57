"""Symmetric counts: how far energies m_i.m_j and m_j.m_i are apart as sweeps go on, with nothing that ties them."""

from __future__ import annotations

import numpy as np
from study import Place, arguments, keep_figure, keep_numbers, new_figure, style

import pairsym_dask as ps

PAPER = {"censored_ratio": 1.0, "tau_u": 1.0, "tau_v": 1.0}
WAYS = {
    'r = 1, taus 1, "bayes" (the paper\'s)': {**PAPER, "selection": "bayes"},
    'r = 1, taus 1, "constant"': {**PAPER, "selection": "constant"},
    'defaults with "bayes"': {"selection": "bayes"},
    "defaults": {},
}


def asymmetry(model: ps.PairedSymbols) -> float:
    """|E - E'| / |E| of the matrix of energies."""
    state = model.to_xarray()
    energy = state.user_mean.to_numpy() @ state.item_mean.to_numpy().T
    return float(np.linalg.norm(energy - energy.T) / np.linalg.norm(energy))


def main() -> None:
    options = arguments(
        __doc__,
        set={"default": "nips"},
        factors={"type": int, "default": 5},
        at={"type": int, "nargs": "+", "default": [1, 5, 10, 20, 40, 70, 100]},
    )
    figure, axes = new_figure(1, width=6.2)
    numbers = {}
    with Place(options.set, options) as place:
        for line, (words, settings) in enumerate(WAYS.items()):
            model = ps.PairedSymbols(factors=options.factors, biases=False, random_state=options.seed, **settings)
            found = []
            for sweeps in options.at:
                model.fit(place.counts, place.folder / f"{line}.zarr", sweeps=sweeps, progress=False)
                found.append(asymmetry(model))
            numbers[words] = {"sweeps": options.at, "asymmetry": found}
            axes[0].plot(options.at, found, label=words, **style(line))
    axes[0].set_yscale("log")
    axes[0].set_xlabel("sweeps")
    axes[0].set_ylabel("asymmetry of the energies, $|E - E^T| / |E|$")
    axes[0].set_title(f"{options.set}: symmetric counts, no ties, K = {options.factors}, no biases")
    axes[0].grid(alpha=0.25)
    axes[0].legend()
    keep_figure(figure, "symmetric", options)
    keep_numbers("symmetric", options, numbers)


if __name__ == "__main__":
    main()
