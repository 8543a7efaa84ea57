"""What each lever of the settings for lists is worth: the defaults, and the defaults with one of them put back.

    python workflows/study_levers.py --users 3000 --sets ml-100k debian citeulike epinions

One held-out item a user; differences are to the defaults, with standard errors over the same users. A lever is put back
to what it is in the paper's model; `everything` puts all of them back at the same K.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import study

import pairsym_dask as ps

SWEEPS = 16
BACK: dict[str, dict[str, Any]] = {
    "defaults": {},
    "prior_growth = 0": {"prior_growth": 0.0},
    "backgrounds = 1": {"background_users": 1.0, "background_items": 1.0},
    "temperature = 1": {"temperature": 1.0},
    "discount = 0": {"discount": 0.0},
    "censored_ratio = 5": {"censored_ratio": 5.0},
    "everything": {
        "prior_growth": 0.0, "background_users": 1.0, "background_items": 1.0, "temperature": 1.0, "discount": 0.0,
        "censored_ratio": 5.0, "tau_u": 0.1, "tau_v": 0.1,
    },
}  # fmt: skip


def look(place: study.Place, factors: int) -> dict[str, dict[str, float]]:
    """R and NDCG@10 of every way, and how far each is from the defaults."""
    found: dict[str, dict[str, float]] = {}
    base: dict[str, np.ndarray] = {}
    for name, settings in BACK.items():
        path = place.folder / f"{len(found)}.zarr"
        model = ps.PairedSymbols(factors=factors, **settings).fit(place.train, path, sweeps=SWEEPS, progress=False)
        judged = ps.evaluate(model, place.held_out, n=10)
        lists = judged.lists.set_index("user")
        each = {
            "R": judged.per_user.set_index("user")["R"].to_numpy(),
            "ndcg@10": lists[next(column for column in lists.columns if column.startswith("ndcg"))].to_numpy(),
        }
        base = base or each
        found[name] = {}
        for measure, values in each.items():
            apart = values - base[measure]
            found[name] |= {
                measure: float(values.mean()), f"{measure} difference": float(apart.mean()),
                f"{measure} standard error": float(apart.std() / np.sqrt(apart.size)),
            }  # fmt: skip
        print(f"{place.name} {name}: { ({k: round(v, 4) for k, v in found[name].items()}) }", flush=True)
    return found


def main() -> None:
    options = study.arguments(
        (__doc__ or "").splitlines()[0],
        sets={"nargs": "+", "default": ["ml-100k", "debian", "citeulike", "epinions"]},
        factors={"type": int, "default": 128},
    )
    results: dict[str, Any] = {"factors": options.factors}
    for name in options.sets:
        with study.Place(name, options, seed=options.seed + 100) as place:  # not a split of other tables
            results[name] = look(place, options.factors)
        study.keep_numbers("levers", options, results)


if __name__ == "__main__":
    main()
