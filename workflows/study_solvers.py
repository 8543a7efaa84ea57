"""Steps of conjugate gradients against systems solved exactly, with the default settings for lists: bounds and ranks.

    python workflows/study_solvers.py --sets ml-100k debian --factors 64 --sweeps 20

Both fits begin alike; how far their bounds are apart in the end is told as a share of what the solved one has gained
since its start.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
import study

import pairsym_dask as ps
from pairsym_dask.sweep import plan

SOLVERS = ("cholesky", "gradients")


def compare(place: study.Place, factors: int, sweeps: int) -> dict[str, Any]:
    """Both solvers on one split: bounds after every sweep, ranks of the held-out pairs."""
    found, ranks = {}, {}
    for solver in SOLVERS:
        model = ps.PairedSymbols(factors=factors, dtype="float64")
        with patch.object(plan, "choose_solver", lambda *shape, solver=solver: solver):
            model.fit(place.train, place.folder / f"{solver}.zarr", sweeps=sweeps, progress=False)
        bound, judged = model.history["elbo"].to_numpy(), ps.evaluate(model, place.held_out, n=10)
        ranks[solver] = judged.per_user["R"].to_numpy()
        found[solver] = {
            "bounds": bound.tolist(), "falls": int((np.diff(bound) < -1e-10 * np.abs(bound[1:])).sum()),
            "R": float(judged.overall["R"]), "ndcg@10": float(judged.overall["ndcg"]),
        }  # fmt: skip
    solved, stepped = (np.array(found[solver]["bounds"]) for solver in SOLVERS)
    apart = ranks["gradients"] - ranks["cholesky"]
    return found | {
        "apart": float(abs(stepped[-1] - solved[-1]) / (solved[-1] - solved[0])),
        "difference_in_R": float(apart.mean()), "standard_error": float(apart.std() / np.sqrt(apart.size)),
    }  # fmt: skip


def main() -> None:
    options = study.arguments(
        (__doc__ or "").splitlines()[0],
        sets={"nargs": "+", "default": ["ml-100k", "debian"]},
        factors={"type": int, "default": 64},
    )
    results = {}
    for name in options.sets:
        with study.Place(name, options) as place:
            one = results[name] = compare(place, options.factors, options.sweeps)
        print(
            f"{name}: bounds apart by {one['apart']:.1e} of the gain, falls "
            f"{[one[solver]['falls'] for solver in SOLVERS]}, R {[round(one[solver]['R'], 4) for solver in SOLVERS]} "
            f"({one['difference_in_R']:+.5f}, standard error {one['standard_error']:.5f}), NDCG@10 "
            f"{[round(one[solver]['ndcg@10'], 4) for solver in SOLVERS]}",
            flush=True,
        )
    study.keep_numbers("solvers", options, {"factors": options.factors, **results})


if __name__ == "__main__":
    main()
