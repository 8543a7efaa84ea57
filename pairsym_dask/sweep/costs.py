"""What the passes of a sweep cost: seconds of one core, by a model fitted to the tasks of whole sweeps.

Tasks on a cluster are as long as it says, and `pairsym plan` adds it up; no bits hang on it.
"""

from __future__ import annotations

from .plan import COLD, Plan

UPDATE, GATHER, STEP, SELECT, FINISH, START = "update", "gather", "step", "select", "finish", "start"
# Nanoseconds: a pair, its K, its K^2; a row, its K, its K^2; rows of the long side, or of the short one where it is
# gathered for. Read off the tasks of sweeps on one thread at K = 20 and 64, of simulated pairs, on a busy machine.
COSTS: dict[str, dict[str, tuple[float, ...]]] = {
    "cholesky": {
        UPDATE: (30.0, 2.0, 0.1, 100.0, 0.0, 0.4),
        GATHER: (20.0, 2.0, 0.09, 200.0, 0.0, 0.4),
        SELECT: (20.0, 2.0, 0.0, 0.0, 0.0, 0.0),
        FINISH: (15.0, 1.3, 0.0, 50.0, 0.0, 0.0),
    },
    "gradients": {
        UPDATE: (60.0, 3.5, 0.0, 200.0, 0.0, 0.05),
        GATHER: (30.0, 1.9, 0.0, 200.0, 0.0, 0.0),
        STEP: (16.0, 0.6, 0.0, 100.0, 0.0, 0.0),
        SELECT: (20.0, 1.3, 0.0, 0.0, 0.0, 0.0),
        FINISH: (20.0, 1.2, 0.0, 50.0, 0.0, 0.0),
    },
    "cold": {
        UPDATE: (40.0, 3.0, 0.0, 200.0, 0.0, 0.02),
        GATHER: (25.0, 1.2, 0.0, 200.0, 0.0, 0.0),
        STEP: (15.0, 0.5, 0.0, 100.0, 0.0, 0.0),
        SELECT: (20.0, 1.3, 0.0, 0.0, 0.0, 0.0),
        FINISH: (15.0, 0.8, 0.0, 50.0, 0.0, 0.0),
    },
}
BLOCK = (100.0, 20.0)  # nanoseconds of a row, and of its K, that is written or read as it is: starts, weights


def family(plan: Plan) -> str:
    """Which kernels a plan's sweeps are made by."""
    if not plan.steps:
        return "cholesky"
    return "cold" if plan.stepping == COLD else "gradients"


def pass_seconds(plan: Plan, kind: str, side: str | None = None) -> float:
    """Core-seconds of a pass over a side; where none is named, of the side that has such passes."""
    if kind == START or (kind == FINISH and side == plan.short):  # statistics are there
        a_row, a_trait = BLOCK
        return 1e-9 * plan.cuts[side or plan.long].rows * (a_row + a_trait * plan.factors)
    pair, pair_k, pair_kk, row, row_k, row_kk = COSTS[family(plan)][kind]
    k, rows = plan.factors, plan.cuts[plan.short if kind in (GATHER, STEP) else plan.long].rows
    a_pair, a_row = pair + pair_k * k + pair_kk * k**2, row + row_k * k + row_kk * k**2
    return 1e-9 * (plan.pairs * a_pair + rows * a_row)


def sweep_seconds(plan: Plan) -> dict[str, float]:
    """Core-seconds of a sweep, by its passes."""
    passes = {UPDATE: 1, GATHER: 1, FINISH: 1}
    if plan.steps and not plan.whole[plan.short]:
        passes[STEP] = plan.short_steps
    if not plan.xi_star_last:
        passes[SELECT] = 1
    return {kind: times * pass_seconds(plan, kind) for kind, times in passes.items()}
