"""The search for defaults: candidates and popularity exponents on validation splits, inside the training store.

The test split of the tables is made first and set aside; a second pair of each user is held out of what is left.
"""

from __future__ import annotations

from typing import Any

from study import Place, arguments, keep_numbers, say

import pairsym_dask as ps
from pairsym_dask.evaluation.evaluate import summarise
from pairsym_dask.evaluation.held_out import HeldOutPairs
from pairsym_dask.evaluation.ranks import Committed, rank

EXPONENTS = (0.0, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.75, 1.0)
CONSTANT, BAYES = {"selection": "constant"}, {"selection": "bayes"}
CANDIDATES: list[dict[str, Any]] = [
    CONSTANT,
    BAYES,
    *({"selection": s, "censored_ratio": r} for s in ("constant", "bayes") for r in (2.0, 10.0, 20.0)),
    *({"selection": "constant", "tau_u": tau, "tau_v": tau, "tau_b": 0.1} for tau in (0.03, 1.0)),
    *({"selection": "constant", "tau_b": tau} for tau in (0.01, 1.0)),
    *({"selection": "constant", "alpha": alpha} for alpha in (0.1, 10.0)),
]


def main() -> None:
    options = arguments(
        __doc__,
        sets={"nargs": "+", "default": ["ml-100k", "gowalla", "epinions", "debian"]},
        at={"type": int, "nargs": "+", "default": [20, 40], "help": "sweeps at which a fit is judged"},
        first={"type": int, "default": len(CANDIDATES), "help": "so many candidates of the list"},
        factors={"type": int, "default": 20},
    )
    rows = []
    for name in options.sets:
        with Place(name, options) as place:
            seed = options.seed + 100
            train, held_out = ps.leave_one_out(place.train, place.folder / "validation.zarr", random_state=seed)
            if len(held_out) > options.users:
                chosen = held_out.sample(options.users, random_state=options.seed)
                held_out = chosen.sort_index().reset_index(drop=True)
            pairs = HeldOutPairs.read(held_out, train)
            for number, settings in enumerate(CANDIDATES[: options.first]):
                settings = {"selection": "constant", **settings}
                model = ps.PairedSymbols(factors=options.factors, random_state=options.seed, **settings)
                for sweeps in options.at:
                    model.fit(train, place.folder / f"{number}.zarr", sweeps=sweeps, progress=False)
                    # All exponents from the same energies.
                    ranks = rank(Committed(model._fitted, train, EXPONENTS), train, pairs)
                    for way, exponent in enumerate(EXPONENTS):
                        overall = summarise(ranks, way, train, pairs, held_out, (10,)).overall
                        measures = {key: round(float(overall[key]), 5) for key in ("R", "ndcg", "log_likelihood")}
                        head = {"set": name, "settings": settings, "sweeps": sweeps, "popularity": exponent}
                        rows.append({**head, **measures})
                    say(f"{name} {settings} {sweeps} sweeps: log p {rows[-1]['log_likelihood']:.4f}")
    keep_numbers("defaults", options, {"users": options.users, "rows": rows})


if __name__ == "__main__":
    main()
