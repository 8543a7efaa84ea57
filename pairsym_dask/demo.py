"""`pairsym demo`: Debian's package dependencies from start to end, on data that come along; and `pairsym warm-up`."""

from __future__ import annotations

import tempfile
import time
from importlib import resources
from pathlib import Path
from typing import Any

import click
import pandas as pd

from .errors import StoreError
from .evaluation.evaluate import compare
from .kernels.accelerate import cache_folder
from .model import PairedSymbols
from .pairs.ingest import ingest
from .pairs.simulate import simulate
from .pairs.splits import leave_one_out
from .store.counts import Counts

FILE = "debian-depends.parquet"
PACKAGES = ("supertux", "r-cran-ggplot2", "audacity", "texlive-latex-extra", "openssh-server", "librust-tokio-dev")


def data_file() -> Path:
    """The embedded pairs: inside an installed package, or in `data/` of a source tree."""
    installed = Path(str(resources.files("pairsym_dask"))) / "data" / FILE
    source = Path(__file__).resolve().parent.parent / "data" / FILE
    for place in (installed, source):
        if place.exists():
            return place
    raise StoreError(f"the demo's data are not where they should be: {installed}")


def warm_up() -> str:
    """Compile whatever commands and models compile, by using it on a handful of pairs; what was done, in words."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="pairsym-warm-up-") as place:
        folder = Path(place)
        simulated = simulate(folder / "simulated.zarr", users=60, items=20, pairs=400, factors=2).to_scipy().tocoo()
        stores = _ingest(pd.DataFrame({"user": simulated.row, "item": simulated.col}), folder)
        train, held_out = leave_one_out(stores[0], folder / "train.zarr")
        for dtype in ("float32", "float64"):
            for k, way in enumerate(_WAYS):
                model = _fit(train, folder / f"{dtype}-{k}.zarr", dtype=dtype, **way)
                _ask(model, held_out)
                for number, store in enumerate(stores[1:] if dtype == "float32" and "inference" not in way else ()):
                    _fit(store, folder / f"{dtype}-{k}-{number}.zarr", **way)
    return f"compiled in {time.perf_counter() - began:.0f} s; kept in {cache_folder()}"


# Systems solved (K below 32) and stepped towards, for lists and for probabilities; full messages; draws.
_WAYS: tuple[dict[str, Any], ...] = (
    {"factors": 2},
    {"factors": 64},
    {"factors": 2, "selection": "constant"},
    {"factors": 64, "selection": "constant"},
    {"factors": 2, "selection": "bayes"},
    {"factors": 2, "inference": "gibbs"},
)


def _ingest(pairs: pd.DataFrame, folder: Path) -> list[Counts]:
    """Stores of numbers and of text in files; those with small, large and fractional counts, which differ for fits."""
    pairs.to_csv(folder / "numbers.csv", index=False)
    ("word " + pairs.astype(str)).to_csv(folder / "words.csv", index=False)
    for name in ("numbers.csv", "words.csv"):
        ingest(folder / name, folder / f"{name}.zarr")
    return [ingest(pairs.assign(n=n), folder / f"counts-{n}.zarr", count="n") for n in (1, 1000, 0.5)]


def _fit(counts: Counts, path: Path, **settings: Any) -> PairedSymbols:
    draws: dict[str, Any] = {"burn": 1, "thin": 1} if settings.get("inference") == "gibbs" else {}
    return PairedSymbols(**settings).fit(counts, path, sweeps=2, progress=False, **draws)


def _ask(model: PairedSymbols, held_out: pd.DataFrame) -> None:
    """Everything that answers."""
    for strategy in ("mean", "ucb", "thompson"):
        model.recommend([0, 1], strategy=strategy)
    model.fold_in([0, 1])
    model.conditional(0)
    model.similar_items(0)
    model.recommend_users(0)
    model.explain(0, 0)
    compare({"this model": model}, held_out)


def run(keep: str | None, sweeps: int) -> None:
    """Ingest, hold out, fit, evaluate, recommend; stores go to `keep` or are removed at the end."""
    if keep is not None:
        folder = Path(keep)
        if folder.exists() and any(folder.iterdir()):
            raise StoreError(f"{keep} is not empty; give another folder")
        _run(folder, sweeps)
        click.echo(f"\nThe stores are in {keep}: try  pairsym info {keep}/model.zarr")
        return
    with tempfile.TemporaryDirectory(prefix="pairsym-demo-") as temporary:
        _run(Path(temporary), sweeps)


def _run(folder: Path, sweeps: int) -> None:
    from .baselines import Popularity

    began = time.perf_counter()
    click.echo("Pairs (package, dependency) of the Debian archive")
    counts = ingest(data_file(), folder / "depends.zarr", user="package", item="dependency")
    users, items = counts.shape
    click.echo(f"  {counts.nnz:,} pairs of {users:,} packages and {items:,} dependencies, in a counts store\n")

    click.echo("Hold out one dependency of every package, fit to the rest: the bound rises with every sweep")
    train, held_out = leave_one_out(counts, folder / "train.zarr", random_state=0)
    bounds: list[float] = []

    def show(sweep: int, elbo: float, seconds: float) -> None:
        rise = f"  up {elbo - bounds[-1]:>10,.0f}" if bounds else ""
        bounds.append(elbo)
        if sweep <= 3 or sweep % 5 == 0 or sweep == sweeps:
            click.echo(f"  sweep {sweep:2d}  bound {elbo:,.0f}{rise:16s}  {seconds:.2f} s")

    # So many small communities of packages want more traits than the default.
    model = PairedSymbols(factors=50, random_state=0)
    model.fit(train, folder / "model.zarr", sweeps=sweeps, progress=False, callback=show)

    click.echo(f"\nWhere do the {len(held_out):,} held-out dependencies rank among all that a package lacks?")
    comparison = compare({"popularity": Popularity().fit(train), "this model": model}, held_out)
    for name, evaluation in comparison.evaluations.items():
        overall = evaluation.overall
        click.echo(
            f"  {name:11s} rank R {overall['R']:.4f} (1 is best)   in the top ten {overall['hr']:.1%}   "
            f"NDCG@10 {overall['ndcg']:.3f}"
        )

    click.echo("\nWhat else would fit these packages? (dependencies that they do not have)")
    table = model.recommend(list(PACKAGES), n=8)
    for package in PACKAGES:
        chosen = table[(table["user"] == package) & (table["item"] != package)].head(6)
        words = ", ".join(f"{item} {sigma:.2f}" for item, sigma in zip(chosen["item"], chosen["sigma"], strict=True))
        click.echo(f"  {package:20s} {words}")
    click.echo(f"\nThe number is p(shown | package, dependency). All of it took {time.perf_counter() - began:.0f} s.")
