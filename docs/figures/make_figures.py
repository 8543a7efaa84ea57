"""Draw the README's picture from the embedded Debian pairs: python docs/figures/make_figures.py"""

from __future__ import annotations

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import pairsym_dask as ps
from pairsym_dask.baselines import Popularity
from pairsym_dask.demo import data_file

PACKAGE = "supertux"
HERE = Path(__file__).parent


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        counts = ps.ingest(data_file(), f"{folder}/depends.zarr", user="package", item="dependency")
        train, held_out = ps.leave_one_out(counts, f"{folder}/train.zarr", random_state=0)
        model = ps.PairedSymbols(factors=50).fit(train, f"{folder}/model.zarr", progress=False)
        held = dict(zip(held_out["user"], held_out["item"], strict=True))[PACKAGE]
        top = model.recommend(PACKAGE, n=8)
        comparison = ps.compare({"this model": model, "popularity": Popularity().fit(train)}, held_out)
        fig, (left, right) = plt.subplots(1, 2, figsize=(10.5, 3.7), layout="constrained", width_ratios=(1.15, 1))
        place = np.arange(len(top))[::-1]
        colours = ["tab:orange" if item == held else "tab:blue" for item in top["item"]]
        left.hlines(place, top["low"], top["high"], colors=colours, linewidth=4, alpha=0.35)
        left.scatter(top["sigma"], place, c=colours, zorder=3)
        left.set_yticks(place, top["item"])
        left.set_xlim(0, 1)
        left.set_xlabel("p(shown | package, dependency), 90 % credible interval")
        left.set_title(
            f"What else would {PACKAGE} depend on?\n(orange: a true dependency that was held out)", fontsize=11
        )
        left.grid(axis="x", alpha=0.3)
        comparison.plot(right)
        right.set_xlabel("dependencies of the package in training (count)")
        right.set_ylabel("average rank R (1 is best, 0.5 is chance)")
        right.set_title(f"Rank of {len(held_out):,} held-out dependencies\namong all {counts.shape[1]:,}", fontsize=11)
        right.grid(alpha=0.3)
        fig.savefig(HERE / "debian.png", dpi=110)


if __name__ == "__main__":
    main()
