"""How a gathering pass over the short side is spread over tasks; no bits hang on it."""

from __future__ import annotations

from dataclasses import dataclass

from ..run.bundles import Hands, in_runs
from .costs import GATHER, pass_seconds
from .plan import Plan, Room

ROOM = 0.05  # of a budget, for partial sums that a task adds up by itself


@dataclass(frozen=True)
class Spread:
    """What a gathering task does, and what becomes of its sums."""

    blocks: int  # of the short side that it gathers for
    shares: list[range]  # of the columns, a run a task, whose partial sums it adds up
    together: bool  # whether a bundle's blocks go on together, or each its own way

    def pieces(self, bundle: range) -> list[range]:
        """Blocks of a bundle that go on together."""
        return [bundle] if self.together else [bundle[k : k + 1] for k in range(len(bundle))]


def spread(plan: Plan, room: Room, hands: Hands) -> Spread:
    """Tasks that last long enough, and no longer; blocks of a bundle stay together if there are bundles for all."""
    bundles = len(plan.bundles(plan.short, room.bundle))
    if not hands.threads:
        return Spread(room.bundle, in_runs(len(plan.shares), 1), False)
    # The sums of a run of 2^n shares wait in a tree of n + 1 levels.
    sums = room.tasks * room.bundle * plan.statistics_bytes()
    levels = int((plan.waiting_bytes() + ROOM * room.budget) // sums)
    shares = hands.aligned(len(plan.shares), pass_seconds(plan, GATHER), bundles, most=2 ** max(0, levels - 1))
    return Spread(room.bundle, shares, bundles >= hands.threads)
