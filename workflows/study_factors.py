"""Gain in average rank by K = 20, 30, 40, 50 over the smallest K, at the paper's setting and at the defaults."""

from __future__ import annotations

import numpy as np
from study import Place, arguments, keep_figure, keep_numbers, new_figure, say, style

import pairsym_dask as ps

PAPER = {"censored_ratio": 1.0, "tau_u": 1.0, "tau_v": 1.0, "tau_b": 1.0, "selection": "bayes"}


def main() -> None:
    options = arguments(
        __doc__,
        sets={"nargs": "+", "default": ["ml-100k", "debian"]},
        factors={"type": int, "nargs": "+", "default": [20, 30, 40, 50]},
    )
    figure, axes = new_figure(2)
    numbers = {}
    line = 0
    for name in options.sets:
        with Place(name, options) as place:
            for words, settings, ranking in (("paper", PAPER, {"popularity": 1.0}), ("defaults", {}, {})):
                found = []
                for k in options.factors:
                    found.append(ps.evaluate(place.fit(factors=k, **settings), place.held_out, **ranking))
                    say(f"{name} {words} K = {k}: R {found[-1].overall['R']:.5f}")
                for ax, measure in zip(axes, ("R", "ndcg"), strict=True):
                    base = found[0].per_user[measure]
                    gain = [(one.per_user[measure] - base) for one in found]
                    error = [one.std() / len(one) ** 0.5 for one in gain]
                    mean = np.array([one.mean() for one in gain])
                    label = f"{name}, {words} (K = {options.factors[0]}: {base.mean():.4f})"
                    ax.errorbar(options.factors, mean, error, capsize=2, label=label, **style(line))
                    numbers[f"{name}, {words}, {measure}"] = {
                        "K": options.factors, "value": [one.per_user[measure].mean() for one in found],
                        "gain": mean, "gain_se": np.array(error),
                    }  # fmt: skip
                line += 1
    for ax, words in zip(axes, ("average rank $R$", "NDCG@10"), strict=True):
        ax.axhline(0, color="0.7", linewidth=0.8)
        ax.set_xlabel("$K$, traits a symbol")
        ax.set_ylabel(f"gain in {words} over K = {options.factors[0]}")
        ax.set_xticks(options.factors)
        ax.set_title(f"Gain in {words} with more traits")
        ax.grid(alpha=0.25)
        ax.legend()
    keep_figure(figure, "factors", options)
    keep_numbers("factors", options, numbers)


if __name__ == "__main__":
    main()
