"""Items that nobody has paired yet, by their tags: cold items of CiteULike-a against peers, warm ones with and without.

    python workflows/study_tags.py DATA [--parts cold noise warm] [--factors 256] [--peers lightfm ridge content]
    python workflows/study_tags.py DATA --parts --output study-tags.json --picture tags.png    # what is there, drawn

DATA is a folder with citeulike-cold.parquet (user, item, part), citeulike-tags.parquet (item, tag) and, for `warm`, the
ratings and titles of ml-100k. Every user with test pairs ranks the test items, none of which has a training pair;
recall@n is the share of the user's test pairs among the first n, averaged over users. Whatever is chosen is chosen on
training items that are held out as if they were cold.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import benchmarking
import numpy as np
import pandas as pd
import scipy.sparse as sp
from scipy.sparse.linalg import cg
from scipy.stats import rankdata
from threadpoolctl import threadpool_limits

import pairsym_dask as ps

CUTS = (20, 100)
SWEEPS = 10
Scores = Callable[[np.ndarray], np.ndarray]  # of users, for all cold items


class Cold:
    """One split: training pairs, cold items with the users who have them, tags of all items."""

    def __init__(self, train: pd.DataFrame, test: pd.DataFrame, tags: pd.DataFrame) -> None:
        self.train, self.test, self.tags = train, test, tags
        self.users, self.warm = (pd.Index(np.unique(train[name])) for name in ("user", "item"))
        self.items, self.names = pd.Index(np.unique(test["item"])), pd.Index(np.unique(tags["tag"]))
        self.pairs = self.matrix(train, self.warm)
        self.truth = self.matrix(test, self.items)
        self.asked = np.flatnonzero(np.diff(self.truth.indptr))

    def matrix(self, pairs: pd.DataFrame, items: pd.Index) -> sp.csr_matrix:
        places = self.users.get_indexer(pairs["user"]), items.get_indexer(pairs["item"])
        return sp.csr_matrix((np.ones(len(pairs), np.float32), places), (len(self.users), len(items)))

    def features(self, items: pd.Index, idf: bool = True) -> sp.csr_matrix:
        """Tags of items, weighed by idf over the warm items, rows of length one."""
        links = self.tags[self.tags["item"].isin(items)]
        places = items.get_indexer(links["item"]), self.names.get_indexer(links["tag"])
        found = sp.csr_matrix((np.ones(len(links)), places), (len(items), len(self.names)))
        if idf:
            warm = self.tags.loc[self.tags["item"].isin(self.warm), "tag"]
            df = np.bincount(self.names.get_indexer(warm), minlength=len(self.names))
            found = found @ sp.diags(np.log((1 + len(self.warm)) / (1 + df)))
        size = np.sqrt(np.asarray(found.multiply(found).sum(1)).ravel())
        return sp.csr_matrix(sp.diags(1 / np.maximum(size, 1e-12)) @ found)

    def recall(self, scores: Scores) -> dict[int, np.ndarray]:
        """recall@n of every asked user, equal scores by position."""
        out: dict[int, list[float]] = {n: [] for n in CUTS}
        for first in range(0, self.asked.size, 500):
            some = self.asked[first : first + 500]
            order = np.argsort(-scores(some), axis=1, kind="stable")[:, : max(CUTS)]
            for row, user in zip(order, some, strict=True):
                truth = self.truth.indices[self.truth.indptr[user] : self.truth.indptr[user + 1]]
                hits = np.isin(row, truth)
                for n in CUTS:
                    out[n].append(hits[:n].sum() / truth.size)
        return {n: np.array(values) for n, values in out.items()}


def citeulike(data: Path, seed: int | None) -> Cold:
    """The public split, or with a seed a fifth of its training items held out in the same way."""
    pairs, tags = (pd.read_parquet(data / f"citeulike-{name}.parquet") for name in ("cold", "tags"))
    train, test = (pairs.loc[pairs["part"] == part, ["user", "item"]] for part in ("train", "test"))
    if seed is not None:
        items = np.unique(train["item"])
        cold = np.random.default_rng(seed).choice(items, items.size // 5, replace=False)
        train, test = train[~train["item"].isin(cold)], train[train["item"].isin(cold)]
    return Cold(train, test[test["user"].isin(train["user"])], tags)


# Systems --------------------------------------------------------------------------------------------------------------


def ours(split: Cold, folder: Path, popularity: float = 0.0, **settings: Any) -> tuple[Scores, ps.PairedSymbols]:
    """This model; cold items are ranked by taste, or with a popularity that is the same for all of them."""
    counts = ps.ingest(split.train, folder / "counts.zarr")
    tags = ps.ingest_tags(split.tags, folder / "tags.zarr")
    sweeps = settings.pop("sweeps", SWEEPS)
    model = ps.PairedSymbols(**settings).fit(
        counts, folder / "model.zarr", sweeps=sweeps, item_tags=tags, progress=False
    )
    known = split.items.isin(model.new_symbols())
    new = split.items[known]

    def scores(users: np.ndarray) -> np.ndarray:
        out = np.full((users.size, len(split.items)), -np.inf)  # beyond the longest list nothing is asked
        top = model.recommend(split.users[users].tolist(), n=max(CUTS), items=new, popularity=popularity)
        row = pd.Index(split.users[users]).get_indexer(top["user"])
        out[row, split.items.get_indexer(top["item"])] = -top["rank"]
        return out

    return scores, model


def ridge(split: Cold, folder: Path, alpha: float = 1.0, **settings: Any) -> Scores:
    """Two steps: a fit without tags, then its items' traits regressed on idf-weighted tags, items weighed by pairs."""
    counts = ps.ingest(split.train, folder / "counts.zarr")
    model = ps.PairedSymbols(**settings).fit(counts, folder / "model.zarr", sweeps=SWEEPS, progress=False)
    k = model.export_factors("items").shape[1] - 2
    traits = model.export_factors("items", labelled=True).loc[split.warm].to_numpy()[:, :k].astype(float)
    users = model.export_factors("users", labelled=True).loc[split.users].to_numpy()[:, :k]
    warm, weight = split.features(split.warm), np.sqrt(np.asarray(split.pairs.sum(0)).ravel())
    right = warm.T @ (weight[:, None] * traits)
    system = sp.csr_matrix(warm.T @ sp.diags(weight) @ warm + alpha * sp.identity(warm.shape[1]))
    effects = np.stack([cg(system, column, rtol=1e-4, maxiter=100)[0] for column in right.T], axis=1)
    cold = split.features(split.items) @ effects
    return lambda some: users[some] @ cold.T


def content(split: Cold, folder: Path) -> Scores:
    """The tags of a user's items against those of an item."""
    profiles, cold = split.pairs @ split.features(split.warm), split.features(split.items)
    return lambda some: np.asarray((profiles[some] @ cold.T).todense())


def lightfm(split: Cold, folder: Path, components: int, epochs: int, rate: float, ridge: float, own: bool) -> Scores:
    """LightFM (WARP) with the same tags, rows of sum one as it likes them; `own` adds a feature for each item."""
    from lightfm import LightFM

    everything = split.warm.append(split.items)
    features = split.features(everything, idf=True)
    features = sp.csr_matrix(sp.diags(1 / np.maximum(np.asarray(features.sum(1)).ravel(), 1e-12)) @ features)
    if own:
        features = sp.hstack([sp.identity(len(everything)), features])
    pairs = sp.csr_matrix(sp.hstack([split.pairs, sp.csr_matrix((len(split.users), len(split.items)))]))
    model = LightFM(components, loss="warp", learning_rate=rate, item_alpha=ridge, random_state=0)
    features = sp.csr_matrix(features, dtype=np.float32)
    model.fit(pairs.tocoo(), item_features=features, epochs=epochs, num_threads=2)
    bias, vectors = model.get_item_representations(features)
    _, users = model.get_user_representations()
    cold, offset = vectors[len(split.warm) :], bias[len(split.warm) :]
    return lambda some: users[some] @ cold.T + offset


def random(split: Cold, folder: Path) -> Scores:
    rng = np.random.default_rng(0)
    return lambda some: rng.random((some.size, len(split.items)))


GRID: dict[str, list[dict[str, Any]]] = {
    "lightfm": [
        {"components": components, "epochs": epochs, "rate": rate, "ridge": alpha, "own": own}
        for components, epochs, rate, alpha, own in (
            (64, 15, 0.05, 0.0, False),
            (64, 40, 0.05, 0.0, False),
            (64, 40, 0.05, 1e-5, False),
            (64, 40, 0.05, 0.0, True),
            (128, 20, 0.05, 0.0, False),
            (128, 20, 0.02, 0.0, False),
        )
    ],
    "ridge": [{"factors": 256, "alpha": alpha} for alpha in (1.0, 10.0)],
    "content": [{}],
    "random": [{}],
}
SYSTEMS: dict[str, Callable[..., Scores]] = {"lightfm": lightfm, "ridge": ridge, "content": content, "random": random}


def interval(values: np.ndarray, replicates: int = 1000) -> list[float]:
    """95 % of a bootstrap over users."""
    rng = np.random.default_rng(0)
    means = [values[rng.integers(0, values.size, values.size)].mean() for _ in range(replicates)]
    return [round(float(q), 4) for q in np.quantile(means, [0.025, 0.975])]


def study_cold(data: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Everybody on the test items, with settings from the validation items."""
    valid, test, rows = citeulike(data, 0), citeulike(data, None), []

    def judge(name: str, make: Callable[[Cold, Path], Scores], settings: dict[str, Any]) -> None:
        began = time.perf_counter()
        with TemporaryDirectory() as folder:
            found = test.recall(make(test, Path(folder)))
        row = {"system": name, "settings": settings, "seconds": round(time.perf_counter() - began, 1)}
        row |= {f"recall@{n}": round(float(values.mean()), 4) for n, values in found.items()}
        row |= {f"interval@{n}": interval(values) for n, values in found.items()}
        rows.append(row)
        print(row, flush=True)

    for name in options.peers:
        tried = []
        for settings in GRID[name] if len(GRID[name]) > 1 else []:
            with TemporaryDirectory() as folder:
                found = valid.recall(SYSTEMS[name](valid, Path(folder), **settings))
            tried.append(float(found[100].mean()))
            print(f"valid {name} {settings}: " + ", ".join(f"{v.mean():.4f}" for v in found.values()), flush=True)
        best = GRID[name][int(np.argmax(tried))] if tried else GRID[name][0]
        judge(name, lambda split, folder, name=name, best=best: SYSTEMS[name](split, folder, **best), best)
    for factors in options.factors:
        given = {"factors": factors}
        judge("pairsym", lambda split, folder, given=given: ours(split, folder, **given)[0], given)
    return rows


def study_noise(data: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """A thousand random tags more, each of a hundred random items: what recall loses, and where their relevance is."""
    test, rng = citeulike(data, None), np.random.default_rng(0)
    everything = np.unique(np.concatenate([test.warm, test.items]))
    noise = pd.DataFrame(
        {"item": rng.choice(everything, 100_000), "tag": np.repeat([f"~{k}" for k in range(1000)], 100)}
    )
    noisy = Cold(test.train, test.test, pd.concat([test.tags, noise], ignore_index=True).drop_duplicates())
    row: dict[str, Any] = {"random_tags": 1000}
    for name, split in (("without", test), ("with", noisy)):
        with TemporaryDirectory() as folder:
            scores, model = ours(split, Path(folder), factors=options.factors[0])
            row |= {f"recall@{n} {name}": round(float(v.mean()), 4) for n, v in split.recall(scores).items()}
            if name == "with":
                tags = model.tags()
                often = tags[tags["symbols"] >= 50]
                random_ones = often["tag"].str.startswith("~").to_numpy()
                rank = rankdata(-often["relevance"])  # equal ones share a rank
                row["often_used_tags"] = len(often)
                row["mean_rank_of_random_ones"] = round(float(rank[random_ones].mean()), 1)
                row["best_rank_of_a_random_one"] = float(rank[random_ones].min())
                row["random_ones_of_no_relevance"] = int((often["relevance"][random_ones] == 0).sum())
                row["others_of_no_relevance"] = int((often["relevance"][~random_ones] == 0).sum())
    for n in CUTS:
        row[f"loss@{n}"] = round(1 - row[f"recall@{n} with"] / row[f"recall@{n} without"], 4)
    print(row, flush=True)
    return [row]


def study_warm(data: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """One held-out pair a user, with and without tags, by how many pairs the item has."""
    rows = []
    for name, (pairs, tags) in {"citeulike-a": warm_citeulike(data), "ml-100k": warm_movies(data)}.items():
        with TemporaryDirectory() as folder:
            place = Path(folder)
            train, held_out = ps.leave_one_out(ps.ingest(pairs, place / "all.zarr"), place / "train.zarr")
            links = ps.ingest_tags(tags, place / "tags.zarr")
            pairs_of = pd.Series(train.marginal("items"), train.item_ids)
            found = {}
            for words, given in (("without", {}), ("with", {"item_tags": links})):
                model = ps.PairedSymbols().fit(train, place / f"{words}.zarr", sweeps=16, progress=False, **given)
                judged = ps.evaluate(model, held_out, n=[10])
                each = judged.per_user.set_index("user")[["item", "R"]]
                lists = judged.lists.set_index("user")
                each["ndcg"] = lists[next(column for column in lists.columns if column.startswith("ndcg"))]
                found[words] = each
            gain = found["with"][["R", "ndcg"]] - found["without"][["R", "ndcg"]]
            row: dict[str, Any] = {"set": name, "users": len(gain)}
            for measure in ("R", "ndcg"):
                row |= {f"{measure} {words}": round(float(one[measure].mean()), 4) for words, one in found.items()}
                row[f"{measure} gain"] = interval(gain[measure].to_numpy())
            many = pairs_of.reindex(found["with"]["item"]).to_numpy()
            row["R gain by pairs of the item"] = {}
            for low, high in itertools.pairwise([0, 1, 3, 6, 11, 26, 10**9]):
                mine = gain["R"].to_numpy()[(many >= low) & (many < high)]
                words = f"{low} and more" if high == 10**9 else str(low) if high == low + 1 else f"{low} to {high - 1}"
                if mine.size:
                    found_gain = [mine.size, round(float(mine.mean()), 4), *interval(mine)]
                    row["R gain by pairs of the item"][words] = found_gain
            rows.append(row)
            print(row, flush=True)
    return rows


def warm_citeulike(data: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    return pd.read_parquet(data / "citeulike-cold.parquet")[["user", "item"]], pd.read_parquet(
        data / "citeulike-tags.parquet"
    )


def warm_movies(data: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Ratings of 4 and 5; tags are years, decades and words of titles, for genres are not at hand."""
    ratings, titles = (pd.read_parquet(data / f"ml-100k-{name}.parquet") for name in ("ratings", "titles"))
    year = titles["title"].str.extract(r"\((\d{4})\)")[0]
    decade = year.str[:3] + "0s"
    words = titles["title"].str.replace(r"\(.*", "", regex=True).str.lower().str.findall(r"[a-z]{4,}")
    links = [titles[["item"]].assign(tag=tag) for tag in (year, decade, words)]
    tags = pd.concat([links[0], links[1], links[2].explode("tag")]).dropna().drop_duplicates()
    return ratings.loc[ratings["rating"] >= 4, ["user", "item"]], tags.astype({"tag": str})


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """What tags change in held-out ranks, by how many pairs the item has."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(rows), figsize=(9, 3.4), sharey=True, constrained_layout=True)
    for axis, row in zip(axes, rows, strict=True):
        bins = row["R gain by pairs of the item"]
        values = np.array([line[1:] for line in bins.values()])
        place = np.arange(len(bins))
        axis.axhline(0, color="0.6", linewidth=1)
        axis.errorbar(place, values[:, 0], np.abs(values[:, 1:].T - values[:, 0]), fmt="o", capsize=3, color="#3a6ea5")
        axis.set_xticks(place, [f"{words.replace(' and more', '+')}\n({line[0]:,})" for words, line in bins.items()])
        axis.set_yscale("symlog", linthresh=0.01)
        axis.set_ylim(-0.012, 0.5)
        axis.set_yticks([-0.01, 0, 0.01, 0.1], ["-.01", "0", ".01", ".1"])
        axis.set(title=row["set"], xlabel="training pairs of the held-out item (cases)")
    axes[0].set_ylabel("R with tags less R without")
    figure.savefig(path, dpi=110)


PARTS = {"cold": study_cold, "noise": study_noise, "warm": study_warm}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--parts", nargs="*", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--factors", type=int, nargs="+", default=[128, 256])
    parser.add_argument("--peers", nargs="*", choices=list(SYSTEMS), default=list(SYSTEMS))
    parser.add_argument("--output", type=Path, help="a JSON file; parts that are not run now stay in it")
    parser.add_argument("--picture", type=Path, help="a PNG file of the part `warm`")
    options = parser.parse_args()
    with threadpool_limits(2):
        found = {part: PARTS[part](options.data, options) for part in options.parts}
    if options.output and options.output.exists():
        found = {**json.loads(options.output.read_text()), **found}
    if options.output and options.parts:
        options.output.write_text(json.dumps({**found, "machine": benchmarking.machine()}, indent=1) + "\n")
    if options.picture:
        draw(found["warm"], options.picture)


if __name__ == "__main__":
    main()
