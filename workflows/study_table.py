"""The table: every system on one set, several splits, with paired bootstrap intervals; optionally what tuning adds."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from study import Place, arguments, keep_numbers, say, systems

import pairsym_dask as ps
from pairsym_dask.evaluation.measures import compared, differences
from pairsym_dask.evaluation.result import Comparison, Evaluation

BINS = (1, 8, 64)  # c_i below 8, 8 to 63, from 64 on


def by_bin(evaluation: Evaluation) -> dict[str, float]:
    """R of users with few, some and many pairs."""
    rows = evaluation.per_user
    return {
        f"R[{low},{high})": float(rows.loc[(rows["c"] >= low) & (rows["c"] < high), "R"].mean())
        for low, high in pairwise([*BINS, np.inf])
    }


def one_split(options: Any, seed: int) -> tuple[dict[str, Evaluation], dict[str, Any] | None]:
    """Evaluations of all systems on a split, and the settings that tuning found."""
    evaluations, found = {}, None
    with Place(options.set, options, seed) as place:

        def judge(name: str, model: Any, **ranking: float) -> None:
            evaluations[name] = ps.evaluate(model, place.held_out, **ranking)
            overall = evaluations[name].overall
            say(
                f"{options.set} split {seed} {name:22s} R {overall['R']:.4f}  NDCG@10 {overall['ndcg']:.4f}  "
                f"log p {overall['log_likelihood']:.3f}"
            )

        for name, fit in systems(place, options.factors, options.epochs, not options.without_implicit).items():
            judge(name, fit())
        if options.tune:
            tuned = ps.tune(place.train, random_state=seed + 100, candidates=options.candidates)
            found = {**tuned.best, "sweeps": tuned.sweeps, "popularity": tuned.popularity}
            say(f"tuned: {found}")
            judge("paired symbols, tuned", place.fit(tuned.sweeps, **tuned.best), popularity=tuned.popularity)
    return evaluations, found


def make_table(options: Any) -> Comparison:
    """All systems on all splits of a set; the numbers are written."""
    made = [one_split(options, options.seed + k) for k in range(options.splits)]
    splits = [evaluations for evaluations, _ in made]
    # Users of all splits together: a user's pairs of several splits are resampled together.
    joined = {name: Evaluation.join([one[name] for one in splits]) for name in splits[0]}
    found = differences(joined, options.seed)
    rows = []
    for name, one in joined.items():
        row: dict[str, Any] = {"system": name}
        for measure in ("R", "hr", "ndcg", "mrr", "log_likelihood"):
            row[measure] = float(one.overall[measure])
            row[f"{measure}_se"] = float(one.overall[f"{measure}_se"])
        for measure in compared((10,)):
            at = found[(found["model"] == name) & (found["measure"] == measure)].iloc[0]
            row[f"{measure}_difference"] = [float(at[part]) for part in ("difference", "low", "high")]
        row |= by_bin(one)
        row["ndcg_by_split"] = [float(split[name].overall["ndcg"]) for split in splits]
        row["R_by_split"] = [float(split[name].overall["R"]) for split in splits]
        rows.append(row)
    keep_numbers(
        f"table-{options.set}",
        options,
        {
            "set": options.set,
            "splits": options.splits,
            "factors": options.factors,
            "pairs_ranked": len(joined["paired symbols"].per_user),
            "tuned": [settings for _, settings in made if settings],
            "rows": rows,
            "R_by_bin": {name: one.frame[["bin", "low", "users", "R", "R_se"]] for name, one in joined.items()},
        },
    )
    return Comparison(joined, found)


def main() -> None:
    options = arguments(
        __doc__,
        set={"default": "ml-100k"},
        splits={"type": int, "default": 3},
        factors={"type": int, "default": 20},
        epochs={"type": int, "default": 100, "help": "of BPR; half as many sweeps of RG"},
        candidates={"type": int, "default": 12},
        tune={"action": "store_true", "help": "tune this model too, on held-out pairs of the training store"},
        **{"without-implicit": {"action": "store_true", "help": "leave the implicit package's models out"}},
    )
    print(make_table(options))


if __name__ == "__main__":
    main()
