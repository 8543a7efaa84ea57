"""The graphs of a sweep: one method a graph, each a pass over blocks, with what its results add up to.

`fit.py` says in which order they run, and what for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..kernels.rows import SQUARE, WEIGHT
from ..run.graph import Graph
from ..settings import other
from ..store.arrays import Sealed
from ..store.commit import Commit
from . import finish, start, tags, tasks
from .background import Background, add_packed, lambda_of, observed_message, update_xi_star, whole_message
from .costs import FINISH, GATHER, SELECT, START, UPDATE, pass_seconds, unit_seconds
from .discount import Discount
from .elbo import SideSums, log_sum_exp
from .gathers import Gathers, Weights
from .record import decode_background
from .start import Earlier
from .steps import Gathering


@dataclass(frozen=True)
class Half:
    """A half-sweep's results beside what it wrote: the side's new background and its part of the bound."""

    background: Background
    sums: SideSums


@dataclass(frozen=True)
class Observed:
    """sum_ij s_i t_j and sum_ij s_i t_j xi_ij^2 over observed pairs."""

    weight: float
    square: float


@dataclass(frozen=True)
class End:
    """The finished state's part of the bound that pairs have, xi*, and the normaliser of the users' next weights."""

    shown: float
    message: float
    xi_star: float
    log_z: float
    tagged: float  # what tags bring to the bound


class Passes(Gathers):
    """The graphs of one attempt at a sweep."""

    def base_of(self, before: Commit) -> Background:
        """The background that a sweep's first half is based on, of the sweep before; on this sweep's axes."""
        turn = self.job.turn
        return decode_background(before, other(self.job.plan.first)) if turn is None else turn.base

    # Passes

    def begin(self, side: str) -> Half:
        """Sweep 0 of one side from small random means."""
        whole = self._powers(side) if self.job.settings.selection == "counts" else None
        graph = self.new_graph()
        keys = [
            graph.add(f"start-{side}", run[0], tasks.update_each, graph.job, start.start_block, (2,), side, whole, run)
            for run in self._runs(side, START)
        ]
        return self._close(side, self._run_each(f"start {side}", graph, keys))

    def take_over(self, side: str, earlier: Earlier, rows: np.ndarray) -> Half:
        """Sweep 0 of one side from the rows of an earlier fit."""
        whole = self._powers(side) if self.job.settings.selection == "counts" else None
        graph, places, keys = self.new_graph(), self.job.plan.places[side], []
        source = graph.hold("earlier", earlier)
        for run in self._runs(side, START):
            mine = [rows[places[block].first : places[block].stop] for block in run]
            shared = graph.job, start.take_over_block, (3, 4), side, source, whole, mine, run
            keys.append(graph.add(f"take-over-{side}", run[0], tasks.update_each, *shared))
        return self._close(side, self._run_each(f"start {side}", graph, keys))

    def update(self, side: str, own: Sealed, its: Sealed, base: Background, xi_star: float, weights: Weights) -> Half:
        """The half-sweep of one side: q(pi), s, q(b_i) and q(u_i), row by row."""
        graph, plan = self.new_graph(), self.job.plan
        ground, star, name = graph.hold("background", base), 2 * lambda_of(xi_star), f"update {side}"
        if side == plan.long:
            others = graph.hold("its", self.job.part(its, plan.short))
            keys = [
                graph.add(
                    f"update-{side}", run[0], tasks.update_each, graph.job, tasks.update_block, (5, 7), side,
                    self.job.part(own, side, run), others, ground, star, weights.hold(graph, run), weights.log_z, run,
                )
                for run in self._runs(side, UPDATE)
            ]  # fmt: skip
            return self._close(side, self._run_each(name, graph, keys))
        old = graph.hold("own", self.job.part(own, side))
        if plan.whole[side]:
            others = graph.hold("its", self.job.part(its, plan.long))
            keys = [
                graph.add(
                    f"update-{side}", run[0], tasks.update_each, graph.job, tasks.update_block, (5, 7), side, old,
                    others, ground, star, weights.hold(graph, run), weights.log_z, run,
                )
                for run in self.hands.bundles(len(plan.places[side]), pass_seconds(plan, GATHER))
            ]  # fmt: skip
        elif plan.steps:
            every = Gathering(side, own, its, star, [], weights.log_z, range(0))
            keys = self.descend(graph, every, ground, weights)
        else:
            keys = self.solve(graph, side, old, its, ground, star, weights)
        return self._close(side, self._run_each(name, graph, keys))

    def select(self, side: str, own: Sealed, its: Sealed) -> tuple[list[np.ndarray], Observed]:
        """Selection statistics of every block of a side, and what they say of xi*."""
        graph = self.new_graph()
        old = graph.hold("own", self.job.part(own, side)) if side == self.job.plan.short else None
        stats = self._select(graph, side, own, its)
        keys = [
            graph.add(
                f"observe-{side}", block, tasks.observed_sums, graph.job, side,
                old or self.job.part(own, side, range(block, block + 1)), key, block,
            )
            for block, key in enumerate(stats)
        ]  # fmt: skip
        results = self.run(f"select {side}", graph, stats + keys)
        weight, square = (float(total) for total in np.array(results[len(stats) :]).sum(0))
        return results[: len(stats)], Observed(weight, square)

    def weigh(
        self, side: str, own: Sealed, stats: list[np.ndarray] | None, base: Background, xi_star: float
    ) -> Weights:
        """s or t of a side from its selection statistics; None where they are fixed."""
        graph, keys = self.new_graph(), []
        ground = graph.hold("background", base)
        for run in self._runs(side, START):
            theirs = [None if stats is None else graph.hold(f"selection-{block}", stats[block]) for block in run]
            shared = side, self.job.part(own, side, run), theirs, ground, xi_star, run
            keys.append(graph.add(f"weigh-{side}", run[0], tasks.each, graph.job, tasks.weigh_block, (2, 5), *shared))
        weighed = self._run_each(f"weigh {side}", graph, keys)
        return Weights([logits for logits, _ in weighed], log_sum_exp(np.array([part for _, part in weighed])))

    def finish(
        self, state: Sealed, own: Background, base: Background, xi_star: float, before: dict[str, Any],
        renew: bool = False,
    ) -> End:  # fmt: skip
        """The selection pass over a finished state: the pairs' part of its bound, and the users' next weights.

        Where it is to `renew` xi*, that is found from the same pass. Beside it the tags of both sides are updated, from
        what was `before`.
        """
        graph, plan = self.new_graph(), self.job.plan
        ground, others = graph.hold("background", base), graph.hold("its", self.job.part(state, plan.short))
        stats: list[Any] = [None] * len(plan.places["users"])
        if plan.long != "users":
            stats = self._select(graph, "users", state, state)
        keys = [
            graph.add(
                "finish-users", run[0], finish.finish_each, graph.job, finish.finish_block, (2, 5),
                self.job.part(state, "users", run), others, [stats[block] for block in run], ground, xi_star, run,
            )
            for run in self._runs("users", FINISH)
        ]  # fmt: skip
        tagging = []
        if before:
            whole = graph.hold("state", state)
            tagging = [
                graph.add(
                    f"tags-{side}", 0, tags.fit_tags, graph.job, side, graph.hold(f"tags-before-{side}", old), whole
                )
                for side, old in before.items()
            ]
        found = self.run("bound", graph, keys + tagging)
        ended, tagged = finish.Finished.join(found[: len(keys)]), found[len(keys) :]
        self.add_files(entry for part in (*tagged, ended) for entry in part.entries)
        shown, message = float(np.sum(ended.shown)), float(np.sum(ended.message))
        if renew:
            observed = np.sum(ended.observed, axis=0)
            xi_star = update_xi_star(xi_star, own, base, float(observed[SQUARE]), float(observed[WEIGHT]))
            message = observed_message(observed, xi_star)
        if self.job.settings.selection == "counts":
            message += whole_message(own, base, xi_star)
        normaliser = log_sum_exp(ended.normaliser)
        return End(shown, message, xi_star, normaliser, float(np.sum([part.bound for part in tagged])))

    def measure_discount(self) -> Discount:
        """What discounted counts sum to: once before a fit."""
        graph, plan, counts = self.new_graph(), self.job.plan, self.job.counts
        runs = self.hands.aligned(plan.cuts[plan.long].blocks, pass_seconds(plan, START))
        keys = [graph.add("measure", run[0], tasks.gather_each, graph.job, start.sum_columns, run) for run in runs]
        (sums,) = self.run("measure", graph, [graph.tree("measure", 0, tasks.add_up, keys, self.arity)])
        return Discount.measure(self.job.settings.discount, counts.total, counts.marginal(plan.short), sums)

    # Parts of graphs

    def _runs(self, side: str, kind: str) -> list[range]:
        """Blocks of a side that a task of some kind works on."""
        plan, costs = self.job.plan, np.empty(0)
        if side == plan.long and kind in (UPDATE, FINISH):  # as heavy as their pairs
            a_pair, a_row = unit_seconds(plan, kind)
            costs = a_row * plan.blocks[side] + a_pair * self.job.row_pairs(side)
        return self.hands.bundles(len(plan.places[side]), pass_seconds(plan, kind, side), plan.least(side), costs)

    def _run_each(self, name: str, graph: Graph, keys: list[str]) -> list[Any]:
        """Values of all blocks in order, of tasks that do several."""
        return [result for some in self.run(name, graph, keys) for result in some]

    def _powers(self, side: str) -> float:
        """sum (alpha + c_i)^beta over a side."""
        graph = self.new_graph()
        keys = [
            graph.add(f"measure-{side}", run[0], tasks.each, graph.job, start.sum_powers, (1,), side, run)
            for run in self._runs(side, START)
        ]
        return float(np.sum(self._run_each(f"measure {side}", graph, keys)))

    def _select(self, graph: Graph, side: str, own: Sealed, its: Sealed) -> list[str]:
        """Nodes for the selection statistics of every block of a side; a key a block."""
        plan, roots = self.job.plan, []
        cut = plan.cuts[side]
        if side == plan.long:
            others = graph.hold("its", self.job.part(its, plan.short))
            return [
                graph.add(
                    f"select-{side}", (block, 0), tasks.select_tile, graph.job, side,
                    self.job.part(own, side, [block]), others, block, 0,
                )
                for block in range(cut.blocks)
            ]  # fmt: skip
        runs = self.hands.aligned(cut.groups, pass_seconds(plan, SELECT), cut.blocks)
        theirs = [graph.hold(f"its-{run[0]}", self.job.part(its, plan.long, plan.visited(run))) for run in runs]
        for tile_block, blocks in enumerate(plan.tile_blocks[side]):
            mine = graph.hold(f"own-{tile_block}", self.job.part(own, side, blocks))
            keys = [
                graph.add(
                    f"select-{side}", (tile_block, run[0]), tasks.gather_each, graph.job, tasks.select_tile, run,
                    side, mine, others, tile_block,
                )
                for run, others in zip(runs, theirs, strict=True)
            ]  # fmt: skip
            whole = graph.tree("selection", tile_block, tasks.add_up, keys, self.arity)
            roots += [
                graph.add("take-selection", block, tasks.take_rows, graph.job, side, whole, block) for block in blocks
            ]
        return roots

    def _close(self, side: str, updated: list[tasks.Updated]) -> Half:
        """What the blocks of a side add up to, always in the blocks' order."""
        self.add_files(entry for part in updated for entry in part.entries)
        packed = add_packed([part.background for part in updated])
        return Half(Background(self.job.settings.factors, packed), SideSums.add([part.sums for part in updated]))
