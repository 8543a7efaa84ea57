"""E[z_d'j] and E[psi_j] against c_j with the model's messages and with constant ones (the pruning picture)."""

from __future__ import annotations

import numpy as np
from study import Place, arguments, keep_figure, keep_numbers, new_figure


def main() -> None:
    options = arguments(__doc__, set={"default": "debian"}, factors={"type": int, "default": 20})
    figure, axes = new_figure(2)
    numbers = {}
    with Place(options.set, options) as place:
        c = place.train.marginal("items").astype(float)
        log_c = np.floor(np.log2(np.maximum(c, 0.5)))
        for ax, selection in zip(axes, ("bayes", "constant"), strict=True):
            state = place.fit(factors=options.factors, selection=selection).to_xarray()
            t = state.item_background.to_numpy().astype(float)
            psi = state.item_selection.to_numpy().astype(float)
            psi /= psi.sum()
            least = t[t > 0].min() if (t > 0).any() else 1e-300
            floor = max(least, 1e-2 / c.sum() * 1e-4)
            some = np.random.default_rng(0).permutation(c.size)[:4000]  # enough dots to see, few enough for the SVG
            for values, mark, grey, size, words in (
                (psi, "^", "0.65", 4.5, r"$E[\psi_j]$"), (np.maximum(t, floor), "o", "0.0", 1.8, r"$E[z_{d'j}]$")
            ):  # fmt: skip
                ax.plot(
                    np.maximum(c[some], 0.5), values[some], mark, markersize=size, color=grey, label=words,
                    markeredgewidth=0, rasterized=True,
                )  # fmt: skip
            edge = np.array([0.8, c.max()])
            ax.plot(edge, edge / c.sum(), color="0.3", linestyle="--", linewidth=1, label="$c_j / D$")
            ax.set_xscale("log")
            ax.set_yscale("log")
            ax.set_xlabel("$c_j$, pairs of the item in training (0 drawn at 0.5)")
            ax.set_title(f'{options.set}, selection="{selection}", {options.sweeps} sweeps')
            ax.grid(alpha=0.25)
            share = t * c.sum() / np.maximum(c, 0.5)
            numbers[selection] = {
                "c_from": [2.0**e for e in np.unique(log_c)],
                "items": [int((log_c == e).sum()) for e in np.unique(log_c)],
                "median_t_over_share": [float(np.median(share[log_c == e])) for e in np.unique(log_c)],
                "least_t": float(t.min()),
            }
    low = min(ax.get_ylim()[0] for ax in axes)
    for ax in axes:
        ax.set_ylim(low, None)
    axes[0].set_ylabel("probability")
    axes[0].legend(markerscale=1.5)
    keep_figure(figure, "pruning", options)
    keep_numbers("pruning", options, numbers)


if __name__ == "__main__":
    main()
