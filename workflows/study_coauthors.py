"""p(co-author | author) by this model and by the softmax MAP, which is tied to be symmetric; log-log, top 25 named."""

from __future__ import annotations

import numpy as np
from study import Place, arguments, keep_figure, keep_numbers, new_figure

from pairsym_dask.baselines import SoftmaxMAP

NAMED = 25


def main() -> None:
    options = arguments(
        __doc__,
        set={"default": "nips"},
        author={"default": "Smola_A", "help": "whose co-authors"},
        factors={"type": int, "default": 5},
        unseen={"nargs": "*", "default": ["Obermayer_K"], "help": "whose ranks are written, ours and the softmax's"},
        iterations={"type": int, "default": 1000, "help": "of the softmax's search, at most"},
    )
    with Place(options.set, options) as place:
        counts = place.counts
        author = options.author if counts.record["labels"]["users"] != "int64" else int(options.author)
        same = np.array_equal(counts.user_ids, counts.item_ids)
        ours = place.fit(
            counts=counts, factors=options.factors, biases=False, censored_ratio=1.0, tau_u=1.0, tau_v=1.0,
            selection="bayes",
        ).conditional(author)  # fmt: skip
        softmax = SoftmaxMAP(factors=options.factors, symmetric=same, iterations=options.iterations).fit(counts)
        theirs = softmax.conditional(author)
        row = counts.to_scipy().tocsr()[counts.positions("users", [author])[0]]
        known = set(counts.item_ids[row.indices])
    figure, axes = new_figure(1, width=10.5, height=5.4)
    ax = axes[0]
    order = theirs.sort_values(ascending=False).index
    rank = np.arange(1, len(order) + 1)
    ax.plot(
        rank, ours[order], ".", markersize=3, color="0.55", label=f"this model, K = {options.factors}", rasterized=True
    )
    ax.plot(rank, theirs[order], "-", color="black", linewidth=1.4, label="softmax MAP")
    mark_names(ax, theirs, order, known, 0, "softmax MAP (filled)", "black")
    mark_names(ax, ours, order, known, 1, "this model (rings)", "0.2")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(0.75, len(order) * 1.3)
    ax.set_xlabel("co-authors in order of the softmax's p (rank, 1 is the most probable)")
    ax.set_ylabel(f"p(co-author | {options.author})")
    ax.set_title(f"Co-authors of {options.author}: the {NAMED} first of each model named, known ones in bold")
    ax.grid(alpha=0.2)
    ax.legend(loc="lower left")
    keep_figure(figure, "coauthors", options)
    top = {name: p.sort_values(ascending=False).head(NAMED) for name, p in (("ours", ours), ("softmax", theirs))}
    keep_numbers(
        "coauthors",
        options,
        {
            "author": options.author,
            "known": sorted(map(str, known)),
            "least": {"ours": ours.min(), "softmax": theirs.min()},
            "median": {"ours": ours.median(), "softmax": theirs.median()},
            "top": {name: [[str(who), float(p)] for who, p in part.items()] for name, part in top.items()},
            "rank_of_unseen": {
                who: [int((p > p[who]).sum()) + 1 for p in (ours, theirs)]
                for who in options.unseen
                if who in ours.index
            },
            "softmax_converged": softmax.converged,
            "decades_between_least": float(np.log10(ours.min() / theirs.min())),
        },
    )


def mark_names(ax, p, order, known, column, title, grey):
    """Names of the most probable in a column beside the axes, their points marked."""
    first = p.sort_values(ascending=False).head(NAMED)
    at = {who: k + 1 for k, who in enumerate(order)}
    left = 1.015 + 0.2 * column
    ax.text(left, 1.0, title, transform=ax.transAxes, va="top", fontsize=8.5, style="italic")
    for k, (who, value) in enumerate(first.items()):
        weight = "bold" if who in known else "normal"
        text = f"{who}  {value:.3f}"
        ax.text(left, 0.955 - 0.037 * k, text, transform=ax.transAxes, va="center", fontsize=7.5, fontweight=weight)
        ax.plot(at[who], value, "so"[column], markersize=4, color=grey, markerfacecolor=(grey, "none")[column])


if __name__ == "__main__":
    main()
