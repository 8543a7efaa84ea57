"""Held-out log-likelihood, R and NDCG@10 against sweeps, with the model's messages and with constant ones."""

from __future__ import annotations

from study import Place, arguments, keep_figure, keep_numbers, new_figure, say, style

import pairsym_dask as ps


def main() -> None:
    options = arguments(
        __doc__,
        sets={"nargs": "+", "default": ["ml-100k", "gowalla"]},
        factors={"type": int, "default": 20},
        at={"type": int, "nargs": "+", "default": [1, 2, 5, 10, 15, 20, 30, 40, 60]},
    )
    figure, axes = new_figure(3, width=4.3, height=3.8)
    numbers = {}
    line = 0
    for name in options.sets:
        with Place(name, options) as place:
            for selection in ("constant", "bayes"):
                model = ps.PairedSymbols(factors=options.factors, selection=selection, random_state=options.seed)
                found = []
                for sweeps in options.at:  # each goes on where the one before stopped
                    model.fit(place.train, place.folder / f"{selection}.zarr", sweeps=sweeps, progress=False)
                    found.append(ps.evaluate(model, place.held_out).overall)
                    say(f"{name} {selection} {sweeps}: log p {found[-1]['log_likelihood']:.4f} R {found[-1]['R']:.4f}")
                label = f"{name}, {selection}"
                elbo = model.history["elbo"].to_numpy()
                numbers[label] = {
                    "sweeps": options.at,
                    **{m: [float(one[m]) for one in found] for m in ("log_likelihood", "R", "ndcg")},
                    "elbo": [float(elbo[k]) for k in options.at],
                    "sweeps_whose_bound_fell": int((elbo[1:] < elbo[:-1]).sum()),
                }
                for ax, measure in zip(axes, ("log_likelihood", "R", "ndcg"), strict=True):
                    ax.plot(options.at, [one[measure] for one in found], label=label, **style(line))
                line += 1
    for ax, words in zip(axes, ("held-out log p(j* | i), nats", "average rank $R$", "NDCG@10"), strict=True):
        ax.set_xlabel("sweeps")
        ax.set_ylabel(words)
        ax.set_title(f"{words.split(',')[0]} by sweeps")
        ax.grid(alpha=0.25)
    axes[0].legend()
    keep_figure(figure, "sweeps", options)
    keep_numbers("sweeps", options, numbers)


if __name__ == "__main__":
    main()
