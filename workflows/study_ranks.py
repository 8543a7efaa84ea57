"""Average rank by c_i, the user's pairs, for every system (the paper's first evaluation figure)."""

from __future__ import annotations

from study import Place, arguments, keep_figure, keep_numbers, new_figure, rank_lines, say, systems

import pairsym_dask as ps


def main() -> None:
    options = arguments(
        __doc__,
        sets={"nargs": "+", "default": ["ml-100k", "gowalla"]},
        factors={"type": int, "default": 20},
        epochs={"type": int, "default": 100, "help": "of BPR; half as many sweeps of RG"},
    )
    figure, axes = new_figure(len(options.sets))
    numbers = {}
    for ax, name in zip(axes, options.sets, strict=True):
        frames = {}
        with Place(name, options) as place:
            for system, fit in systems(place, options.factors, options.epochs, implicit=False).items():
                frames[system] = ps.evaluate(fit(), place.held_out).frame
                say(f"{name} {system}")
            title = f"{name}: {len(place.held_out):,} held-out pairs, K = {options.factors}"
        rank_lines(ax, frames, title)
        numbers[name] = {
            system: frame[["bin", "low", "users", "R", "R_se", "ndcg"]] for system, frame in frames.items()
        }
    axes[0].legend()
    keep_figure(figure, "ranks", options)
    keep_numbers("ranks", options, {"sets": numbers})


if __name__ == "__main__":
    main()
