"""What the passes of a sweep cost: seconds of one core, by a model fitted to the tasks of whole sweeps.

Tasks on a cluster are as long as it says, and `pairsym plan` adds it up; no bits hang on it.
"""

from __future__ import annotations

from .plan import COLD, Plan

UPDATE, GATHER, STEP, SELECT, FINISH, START = "update", "gather", "step", "select", "finish", "start"
# Nanoseconds: a pair, its K, its K^2; a row, its K, its K^2; rows of the long side, or of the short one where it is
# gathered for. Fitted to the passes of sweeps on one thread, K = 10 to 128, of three shapes of simulated pairs, on a
# quiet machine (`python workflows/benchmark_plan.py --refit`); new cold fits have no pass that selects.
COSTS: dict[str, dict[str, tuple[float, ...]]] = {
    "cholesky": {
        UPDATE: (37.3, 0.791, 0.0113, 0.0, 0.0, 0.378),
        GATHER: (6.64, 0.566, 0.0227, 590.0, 10.9, 1.05),
        SELECT: (7.04, 0.0278, 0.0, 46.1, 1.27, 0.146),
        FINISH: (13.2, 0.0, 0.00309, 13.0, 0.0, 0.12),
    },
    "gradients": {
        UPDATE: (132.0, 0.111, 0.0, 0.0, 0.0, 0.205),
        GATHER: (82.8, 0.0357, 0.0, 0.0, 29.3, 0.0283),
        STEP: (28.6, 0.0, 0.0, 0.0, 7.72, 0.0273),
        SELECT: (20.7, 0.0, 0.0, 188.0, 4.09, 0.0),
        FINISH: (32.4, 0.0, 0.0, 0.0, 2.87, 0.0388),
    },
    "cold": {
        UPDATE: (47.7, 0.312, 0.0, 0.0, 2.61, 0.0642),
        GATHER: (5.58, 0.396, 0.0, 0.0, 38.4, 0.0),
        STEP: (6.57, 0.0, 0.000546, 41.0, 7.72, 0.0423),
        SELECT: (20.7, 0.0, 0.0, 188.0, 4.09, 0.0),
        FINISH: (14.6, 0.0285, 0.0, 0.0, 1.3, 0.00649),
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
    a_pair, a_row = unit_seconds(plan, kind)
    return plan.pairs * a_pair + plan.cuts[plan.short if kind in (GATHER, STEP) else plan.long].rows * a_row


def unit_seconds(plan: Plan, kind: str) -> tuple[float, float]:
    """Core-seconds of a pair and of a row in a pass."""
    pair, pair_k, pair_kk, row, row_k, row_kk = COSTS[family(plan)][kind]
    k = plan.factors
    return 1e-9 * (pair + pair_k * k + pair_kk * k**2), 1e-9 * (row + row_k * k + row_kk * k**2)


def sweep_seconds(plan: Plan) -> dict[str, float]:
    """Core-seconds of a sweep, by its passes."""
    passes = {UPDATE: 1, GATHER: 1, FINISH: 1}
    if plan.steps and not plan.whole[plan.short]:
        passes[STEP] = plan.short_steps
    if not plan.xi_star_last:
        passes[SELECT] = 1
    return {kind: times * pass_seconds(plan, kind) for kind, times in passes.items()}
