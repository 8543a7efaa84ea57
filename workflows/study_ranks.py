"""Average rank by c_i, the user's pairs, for every system (the paper's first evaluation figure).

Draws what study_table.py has written for a set; a set without a table is computed first, on one split.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pandas as pd
from study import arguments, keep_figure, keep_numbers, new_figure, rank_lines
from study_table import make_table

LEFT_OUT = ("ALS", "implicit", "paired symbols, tuned")  # the picture has the paper's systems


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
        path = Path(options.results) / f"study-table-{name}.json"
        if not path.exists():
            own = {"set": name, "splits": 1, "tune": False, "without_implicit": True}
            make_table(argparse.Namespace(**vars(options), **own))
        table = json.loads(path.read_text())
        frames = {
            system: pd.DataFrame(columns)
            for system, columns in table["R_by_bin"].items()
            if not system.startswith(LEFT_OUT)
        }
        splits = f"{table['splits']} split{'s' if table['splits'] > 1 else ''}"
        rank_lines(ax, frames, f"{name}: {table['pairs_ranked']:,} held-out pairs of {splits}, K = {table['factors']}")
        lowest = min(frame.loc[frame["users"] >= 20, "R"].min() for k, frame in frames.items() if k != "popularity")
        worst = frames["popularity"]["R"].max()
        if worst < lowest - 0.1:  # popularity would squeeze all others into one line
            ax.set_ylim(lowest - 0.01, None)
            ax.text(0.02, 0.02, f"popularity is below the picture: at most {worst:.2f}", transform=ax.transAxes)
        numbers[name] = frames
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    keep_figure(figure, "ranks", options)
    keep_numbers("ranks", options, {"sets": numbers})


if __name__ == "__main__":
    main()
