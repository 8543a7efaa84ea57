"""Average rank by c_i for several censored ratios r in D' = r D, at the paper's setting and at the defaults."""

from __future__ import annotations

from study import Place, arguments, keep_figure, keep_numbers, new_figure, rank_lines

import pairsym_dask as ps

RATIOS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
PAPER = {"tau_u": 1.0, "tau_v": 1.0, "tau_b": 1.0, "selection": "bayes"}


def main() -> None:
    options = arguments(__doc__, set={"default": "ml-100k"}, factors={"type": int, "default": 20})
    figure, axes = new_figure(2)
    numbers = {}
    with Place(options.set, options) as place:
        ways = {
            "paper": (PAPER, {"popularity": 1.0}, "taus 1, popularity 1, full messages (the paper's)"),
            "ours": ({}, {}, "defaults"),
        }
        for ax, (key, (settings, ranking, words)) in zip(axes, ways.items(), strict=True):
            found = {
                f"r = {r:g}": ps.evaluate(
                    place.fit(factors=options.factors, censored_ratio=r, **settings), place.held_out, **ranking
                )
                for r in RATIOS
            }
            rank_lines(ax, {name: one.frame for name, one in found.items()}, f"{options.set}, {words}")
            numbers[key] = {name: one.overall[["R", "R_se", "ndcg", "log_likelihood"]] for name, one in found.items()}
            numbers[f"{key}_by_bin"] = {name: one.frame[["bin", "users", "R", "R_se"]] for name, one in found.items()}
    low, high = (min(ax.get_ylim()[0] for ax in axes), max(ax.get_ylim()[1] for ax in axes))
    for ax in axes:
        ax.set_ylim(low, high)
    axes[0].legend(ncols=2)
    keep_figure(figure, "censored", options)
    keep_numbers("censored", options, numbers)


if __name__ == "__main__":
    main()
