"""Densities of sigma(x_ij*) of held-out pairs by c_i = 1 .. 40, for r = 1/2, 1, 2: what censoring does."""

from __future__ import annotations

import numpy as np
from study import Place, arguments, keep_figure, keep_numbers, new_figure

RATIOS = (0.5, 1.0, 2.0)
MOST = 40
CELLS = 40  # of sigma, from 0 to 1
FEWEST = 20  # users; a density of fewer is left out


def main() -> None:
    options = arguments(__doc__, set={"default": "debian"}, factors={"type": int, "default": 20})
    figure, axes = new_figure(len(RATIOS), width=4.2, height=3.8)
    numbers = {}
    with Place(options.set, options) as place:
        c = place.train.marginal("users")[place.train.positions("users", place.held_out["user"].to_numpy())]
        for ax, r in zip(axes, RATIOS, strict=True):
            model = place.fit(
                factors=options.factors, censored_ratio=r, tau_u=1.0, tau_v=1.0, tau_b=1.0, selection="bayes"
            )
            sigma = model.probability(place.held_out["user"], place.held_out["item"])["sigma"].to_numpy()
            edges = np.linspace(0, 1, CELLS + 1)
            table = np.full((MOST, CELLS), np.nan)
            for k in range(1, MOST + 1):
                if (c == k).sum() >= FEWEST:
                    table[k - 1] = np.histogram(sigma[c == k], edges, density=True)[0]
            shown = ax.pcolormesh(edges, np.arange(0.5, MOST + 1), table, cmap="Greys", vmin=0, vmax=8, rasterized=True)
            means = np.array([sigma[c == k].mean() if (c == k).sum() >= FEWEST else np.nan for k in range(1, MOST + 1)])
            ax.plot(means, np.arange(1, MOST + 1), color="black", linestyle="--", linewidth=1.5, label="mean")
            ax.axvline(1 / (1 + r), color="0.4", linestyle=":", label="1 / (1 + r)")
            ax.set_title(f"{options.set}, r = {r:g}")
            ax.set_xlabel(r"$\sigma(x_{ij^*})$ of held-out pairs")
            numbers[f"r = {r:g}"] = {
                "mean": sigma.mean(), "mean_by_c": means, "users_by_c": np.bincount(c.astype(int), minlength=41)[1:41]
            }  # fmt: skip
    axes[0].set_ylabel("$c_i$, pairs of the user in training")
    axes[0].legend(loc="lower left")
    figure.colorbar(shown, ax=axes[-1], label="density")
    keep_figure(figure, "sigma", options)
    keep_numbers("sigma", options, numbers)


if __name__ == "__main__":
    main()
