"""Lists of the defaults against tuned peers, on real sets: R and NDCG@10 of one held-out item a user, three splits.

    python workflows/study_lists.py --users 3000 --sets ml-100k debian citeulike epinions gowalla

Peers are tuned on the validation pairs of the first split, `--trials` settings each (drawn as `pairsym benchmark` draws
them), and keep what was best there; `--chosen` takes that from the results of an earlier run, or from the record of a
`pairsym benchmark` of the set. This model is not tuned: its defaults at several K stand beside the settings
for probabilities, which used to be the defaults. Differences are to the defaults at K = 128, with 95 % intervals of a
paired bootstrap over the users of all splits.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import study
from threadpoolctl import threadpool_limits

import pairsym_dask as ps
from pairsym_dask.benchmarks.contenders import CONTENDERS

OURS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "defaults, K = 64": {"factors": 64},
    "defaults, K = 256": {"factors": 256},
    "constant messages, K = 20": {"selection": "constant"},
}
PEERS = ("item-knn", "rp3beta", "ease", "gf-cf", "implicit-als", "ials-64", "implicit-bpr")
MOST_ITEMS = 12_000  # EASE inverts a matrix of all items
MEASURES = ("R", "ndcg@10", "log_likelihood")
SWEEPS = 16
REPLICATES = 1000


def peers(place: study.Place) -> list[str]:
    return [name for name in place.options.peers if name != "ease" or place.train.shape[1] <= MOST_ITEMS]


def tuned(place: study.Place, trials: int) -> dict[str, dict[str, Any]]:
    """The settings of every peer that did best in NDCG@10 on validation pairs of a split."""
    seed = place.seed + 100
    train, held_out = ps.leave_one_out(place.train, place.folder / "validation.zarr", random_state=seed)
    if len(held_out) > place.options.users:
        held_out = held_out.sample(place.options.users, random_state=seed).sort_index().reset_index(drop=True)
    best = {}
    for name in peers(place):
        contender, scores = CONTENDERS[name], []
        tried = contender.trials(trials, place.options.seed)
        for settings in tried:
            model = contender.fit(settings, train, "")
            scores.append(ps.evaluate(model, held_out, n=10).overall["ndcg"])
        best[name] = tried[int(np.argmax(scores))]
        print(f"{place.name} {name}: {best[name]} of {len(tried)}, valid NDCG@10 {max(scores):.4f}", flush=True)
    return best


def chosen_before(file: str, name: str, wanted: list[str]) -> dict[str, dict[str, Any]]:
    """What an earlier run, or a benchmark of the set, has chosen for the peers."""
    record = json.loads(Path(file).read_text())
    if "contenders" in record:
        return {peer: record["contenders"][peer]["chosen"]["settings"] for peer in wanted}
    return {peer: record[name]["chosen"][peer] for peer in wanted}


def judged(place: study.Place, chosen: dict[str, dict[str, Any]]) -> dict[str, pd.DataFrame]:
    """What every system says of a split's held-out pairs, a row a user."""
    found = {}
    for name, settings in OURS.items():
        sweeps = SWEEPS if "selection" not in settings else 20
        model = ps.PairedSymbols(**settings).fit(
            place.train, place.folder / f"{len(found)}.zarr", sweeps=sweeps, progress=False
        )
        found[name] = ps.evaluate(model, place.held_out, n=[10])
    for name, settings in chosen.items():
        model = CONTENDERS[name].fit(settings, place.train, "")
        found[name] = ps.evaluate(model, place.held_out, n=[10])
    return {name: rows(one) for name, one in found.items()}


def rows(evaluation: Any) -> pd.DataFrame:
    """R, NDCG@10 and log p of every user (there is one held-out pair each)."""
    lists = evaluation.lists.set_index("user")
    pairs = evaluation.per_user.set_index("user")
    ndcg = next(name for name in lists.columns if name.startswith("ndcg"))
    return pd.DataFrame({"R": pairs["R"], "ndcg@10": lists[ndcg], "log_likelihood": pairs["log_likelihood"]})


def summary(splits: list[dict[str, pd.DataFrame]], seed: int) -> dict[str, Any]:
    """Means over all splits, and differences to the defaults with their intervals."""
    tables = {name: pd.concat([split[name] for split in splits], keys=range(len(splits))) for name in splits[0]}
    base, rng = tables["defaults"], np.random.default_rng(seed)
    users = base.index.get_level_values(1)
    codes, labels = pd.factorize(users)
    draws = [np.bincount(rng.integers(len(labels), size=len(labels)), minlength=len(labels)) for _ in range(REPLICATES)]
    out: dict[str, Any] = {}
    for name, table in tables.items():
        out[name] = {}
        for measure in MEASURES:
            difference = (table[measure] - base[measure]).to_numpy()
            sums, sizes = np.bincount(codes, difference), np.bincount(codes)
            means = [drawn @ sums / (drawn @ sizes) for drawn in draws]
            out[name][measure] = {
                "value": float(table[measure].mean()), "difference": float(difference.mean()),
                "low": float(np.quantile(means, 0.025)), "high": float(np.quantile(means, 0.975)),
            }  # fmt: skip
    return out


def main() -> None:
    options = study.arguments(
        (__doc__ or "").splitlines()[0],
        sets={"nargs": "+", "default": ["ml-100k", "debian", "citeulike", "epinions", "gowalla"]},
        splits={"type": int, "default": 3},
        trials={"type": int, "default": 6},
        peers={"nargs": "+", "default": PEERS, "choices": PEERS},
        chosen={"help": "results of an earlier run, or the record of a benchmark"},
    )
    results: dict[str, Any] = {}
    with threadpool_limits(1, "blas"):
        for name in options.sets:
            splits, chosen = [], None
            for split in range(options.splits):
                with study.Place(name, options, seed=options.seed + split) as place:
                    if chosen is None and options.chosen:
                        chosen = chosen_before(options.chosen, name, peers(place))
                    chosen = tuned(place, options.trials) if chosen is None else chosen
                    splits.append(judged(place, chosen))
            results[name] = {"chosen": chosen, "systems": summary(splits, options.seed)}
            for system, measures in results[name]["systems"].items():
                words = "  ".join(
                    f"{m} {v['value']:.4f} ({v['difference']:+.4f} [{v['low']:+.4f}, {v['high']:+.4f}])"
                    for m, v in measures.items()
                )
                print(f"{name} {system}: {words}", flush=True)
            study.keep_numbers("lists", options, results)


if __name__ == "__main__":
    main()
