"""What the study's scripts share: real sets by name, splits, every system under one contract, figures and results.

Data are looked for in a folder (`--data`, by default the environment variable PAIRSYM_DATA):
ml-100k-ratings.parquet (user, item, rating), gowalla.parquet (user, item), nips-coauthors.parquet (author, coauthor,
count), epinions.parquet (made by fetch_epinions.py), citeulike-cold.parquet (user, item, part: its training part).
Debian's pairs come with the package; "blocks" and "friends" are generated, small and quick.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

import pairsym_dask as ps
from pairsym_dask import baselines
from pairsym_dask.demo import data_file

HERE = Path(__file__).resolve().parent
ALPHAS = (1, 5, 10, 20, 40)
STYLES = [(dash, mark) for mark, dash in zip("osD^vPX*<>hp", ["-", "--", "-.", ":"] * 3, strict=True)]
GREYS = ("0.0", "0.35", "0.55", "0.2", "0.7", "0.45")


def arguments(description: str, **extra: Any) -> argparse.Namespace:
    """Options that every script has, and its own."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("PAIRSYM_DATA"), help="folder of real pairs")
    parser.add_argument("--output", default=str(HERE.parent / "docs" / "figures"), help="folder of pictures")
    parser.add_argument("--results", default=str(HERE / "results"), help="folder of numbers, as JSON")
    parser.add_argument("--sweeps", type=int, default=20)
    parser.add_argument("--users", type=int, default=10_000, help="held-out pairs to rank, at most")
    parser.add_argument("--seed", type=int, default=0, help="of the split and of the fits")
    for name, options in extra.items():
        parser.add_argument(f"--{name}", **options)
    return parser.parse_args()


def read_pairs(name: str, folder: str | None) -> pd.DataFrame:
    """Pairs of a set as a frame user, item (and count)."""
    if name == "debian":
        return pd.read_parquet(data_file()).set_axis(["user", "item"], axis=1)
    if name == "blocks":
        return block_pairs()
    if name == "friends":
        return friend_pairs()
    if not folder:
        raise SystemExit("name the folder of real pairs by --data or PAIRSYM_DATA")
    place = Path(folder)
    if name == "ml-100k":
        ratings = pd.read_parquet(place / "ml-100k-ratings.parquet")
        return ratings.loc[ratings["rating"] >= 4, ["user", "item"]]
    if name == "citeulike":
        pairs = pd.read_parquet(place / "citeulike-cold.parquet")
        return pairs.loc[pairs["part"] == "train", ["user", "item"]]
    if name == "nips":
        return pd.read_parquet(place / "nips-coauthors.parquet").set_axis(["user", "item", "count"], axis=1)
    return pd.read_parquet(place / f"{name}.parquet")[["user", "item"]]


def block_pairs(users: int = 240, items: int = 80, groups: int = 4) -> pd.DataFrame:
    """Generated pairs: users who mostly take items of their own group, some items far more popular than others."""
    rng = np.random.default_rng(0)
    weight = np.where(np.arange(users)[:, None] % groups == np.arange(items) % groups, 1.0, 0.03)
    weight *= rng.gamma(0.7, size=items) + 0.02
    rows = []
    for user in range(users):
        n = 2 + min(rng.poisson(rng.gamma(1.0) * 8), items // 3)
        rows += [(user, item) for item in rng.choice(items, n, replace=False, p=weight[user] / weight[user].sum())]
    return pd.DataFrame(rows, columns=["user", "item"])


def friend_pairs(people: int = 60, groups: int = 4) -> pd.DataFrame:
    """Generated symmetric counts: friends of one group meet often, others seldom."""
    rng = np.random.default_rng(0)
    often = np.where(np.arange(people)[:, None] % groups == np.arange(people) % groups, 0.5, 0.02)
    met = np.triu(rng.poisson(often), 1)
    row, column = np.nonzero(met + met.T)
    return pd.DataFrame({"user": row, "item": column, "count": (met + met.T)[row, column]})


class Place:
    """A scratch folder with one set, split; models are kept in it until the end."""

    def __init__(self, name: str, options: argparse.Namespace, seed: int | None = None) -> None:
        self.name, self.options = name, options
        self.seed = options.seed if seed is None else seed
        self.folder = Path(tempfile.mkdtemp(prefix="pairsym-study-"))

    def __enter__(self) -> Place:
        pairs = read_pairs(self.name, self.options.data)
        count = "count" if "count" in pairs else None
        self.counts = ps.ingest(pairs, self.folder / "counts.zarr", count=count)
        self.train, held_out = ps.leave_one_out(self.counts, self.folder / "train.zarr", random_state=self.seed)
        if len(held_out) > self.options.users:
            held_out = held_out.sample(self.options.users, random_state=self.seed).sort_index().reset_index(drop=True)
        self.held_out = held_out
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def fit(self, sweeps: int | None = None, counts: ps.Counts | None = None, **settings: Any) -> ps.PairedSymbols:
        """This model, fitted to the training store unless another is given; the same fit is not done twice."""
        settings = {"selection": "constant", "random_state": self.seed, **settings}
        total = self.options.sweeps if sweeps is None else sweeps
        label = "-".join(f"{key}={value}" for key, value in sorted(settings.items()))
        path = self.folder / f"{'all' if counts else 'train'}-{total}-{label}.zarr"
        model = ps.PairedSymbols(**settings)
        model.fit(counts or self.train, path, sweeps=total, progress=False)
        return model


class Implicit:
    """A fitted model of the implicit package under the contract of `ps.evaluate`."""

    def __init__(self, model: Any, counts: ps.Counts) -> None:
        self.counts, self._model = counts, model
        matrix = counts.to_scipy().astype(np.float32).tocsr()
        with threadpool_limits(1, "blas"):  # as the package wants it
            model.fit(matrix, show_progress=False)

    def scores(self, users: Any) -> np.ndarray:
        rows = self._model.user_factors[self.counts.positions("users", users)]
        return np.asarray(rows @ self._model.item_factors.T)


def systems(place: Place, factors: int = 20, epochs: int = 100, implicit: bool = True) -> dict[str, Callable[[], Any]]:
    """How to fit every system of the table, by name; this model first."""
    train, seed = place.train, place.seed
    common = {"factors": factors, "random_state": seed}
    graph = baselines.RandomGraph(sweeps=epochs // 2, **common)
    found: dict[str, Callable[[], Any]] = {
        "paired symbols": lambda: place.fit(factors=factors),
        "popularity": lambda: baselines.Popularity().fit(train),
        "BPR-uniform": lambda: baselines.BPR(epochs=epochs, **common).fit(train),
        "BPR-pop": lambda: baselines.BPR(negatives="popularity", epochs=epochs, **common).fit(train),
        "RG-like": lambda: graph.fit(train),
        "RG-pop*like": lambda: _ranked(graph, "pop*like"),  # the same fit
    }
    if train.shape[0] * train.shape[1] <= 3_000_000:
        found["softmax MAP"] = lambda: baselines.SoftmaxMAP(iterations=3 * epochs, **common).fit(train)
    if implicit:
        import implicit.als
        import implicit.bpr

        for alpha in ALPHAS:
            found[f"ALS alpha={alpha}"] = lambda alpha=alpha: Implicit(
                implicit.als.AlternatingLeastSquares(alpha=alpha, num_threads=1, **common), train
            )
        found["implicit BPR"] = lambda: Implicit(
            implicit.bpr.BayesianPersonalizedRanking(iterations=epochs, num_threads=1, **common), train
        )
    return found


def _ranked(graph: baselines.RandomGraph, ranking: str) -> baselines.RandomGraph:
    """A fitted random graph with another ranking."""
    other = copy.copy(graph)
    other.ranking = ranking
    return other


def new_figure(columns: int = 1, width: float = 5.2, height: float = 4.0) -> tuple[Any, Any]:
    """A figure with a row of axes."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    # Text stays text in the SVG, and the same numbers give the same file.
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "pairsym", "font.size": 9, "legend.fontsize": 8})
    figure, axes = plt.subplots(1, columns, figsize=(width * columns, height), layout="constrained", squeeze=False)
    return figure, axes[0]


def style(number: int) -> dict[str, Any]:
    """Dashes, marks and a grey that tell line `number` apart without colour."""
    dash, mark = STYLES[number % len(STYLES)]
    return {"linestyle": dash, "marker": mark, "color": GREYS[number % len(GREYS)], "markersize": 4.5, "linewidth": 1.3}


def rank_lines(ax: Any, frames: dict[str, pd.DataFrame], title: str) -> None:
    """Average rank by bins of c_i, a line a system; bins of fewer than 20 users are left out of the picture."""
    for number, (name, frame) in enumerate(frames.items()):
        bins = frame[(frame["low"] > 0) & (frame["users"] >= min(20, frame["users"].max()))]
        ax.errorbar(bins["low"] * 2**0.5, bins["R"], bins["R_se"].fillna(0), label=name, capsize=2, **style(number))
    ax.set_xscale("log", base=2)
    ax.set_xlabel("$c_i$, pairs of the user in training (bins: powers of two)")
    ax.set_ylabel("average rank $R(i, j^*)$ (1 is best)")
    ax.set_title(title)
    ax.grid(alpha=0.25)


def keep_figure(figure: Any, name: str, options: argparse.Namespace) -> None:
    """Write a figure as PNG and SVG."""
    import matplotlib.pyplot as plt

    folder = Path(options.output)
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / f"{name}.png", dpi=110, metadata={"Software": None})
    figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
    plt.close(figure)
    say(f"{folder / name}.png, .svg")


def keep_numbers(name: str, options: argparse.Namespace, numbers: dict[str, Any]) -> None:
    """Write numbers beside the seed and the command that they come from."""
    command = " ".join(["python", f"workflows/{Path(sys.argv[0]).name}", *sys.argv[1:]])
    said = {"command": command, "seed": options.seed, "sweeps": options.sweeps}
    path = Path(options.results) / f"study-{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**said, **numbers}, default=_plain, indent=1) + "\n")
    say(str(path))


def _plain(value: Any) -> Any:
    """Numbers of numpy and frames as JSON knows them, to six digits."""
    if isinstance(value, pd.DataFrame):
        return value.round(6).to_dict(orient="list")
    if isinstance(value, pd.Series):
        return value.round(6).to_dict()
    if isinstance(value, np.ndarray):
        return [None if number != number else number for number in np.round(value, 6).tolist()]
    return value.item()


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
