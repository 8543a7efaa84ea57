"""The graphs of a sweep: one method a graph, each a pass over blocks, with what its results add up to.

`fit.py` says in which order they run, and what for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..kernels.rows import SQUARE, WEIGHT
from ..run.execute import Attempt, Graph
from ..settings import other
from ..store.arrays import Sealed
from ..store.commit import Commit
from . import start, tags, tasks
from . import steps as by_steps
from .background import Background, lambda_of, observed_message, update_xi_star, whole_message
from .discount import Discount
from .elbo import SideSums, log_sum_exp
from .job import Job
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
class Weights:
    """log s or log t of a side up to its normaliser, a block each; None where the generation before holds them."""

    logits: list[np.ndarray] | None
    log_z: float

    def block(self, number: int) -> np.ndarray | None:
        return None if self.logits is None else self.logits[number]


@dataclass(frozen=True)
class End:
    """The finished state's part of the bound that pairs have, xi*, and the normaliser of the users' next weights."""

    shown: float
    message: float
    xi_star: float
    log_z: float
    tagged: float  # what tags bring to the bound


class Passes(Attempt[Job]):
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
            graph.add(f"start-{side}", block, start.start_block, graph.job, side, whole, block)
            for block in range(len(self.job.plan.places[side]))
        ]
        return self._close(side, self.run(f"start {side}", graph, keys))

    def take_over(self, side: str, earlier: Earlier, rows: np.ndarray) -> Half:
        """Sweep 0 of one side from the rows of an earlier fit."""
        whole = self._powers(side) if self.job.settings.selection == "counts" else None
        graph = self.new_graph()
        source = graph.hold("earlier", earlier)
        keys = []
        for block, place in enumerate(self.job.plan.places[side]):
            mine = rows[place.first : place.stop]
            keys.append(
                graph.add(
                    f"take-over-{side}", block, start.take_over_block, graph.job, side, source, whole, mine, block
                )
            )
        return self._close(side, self.run(f"start {side}", graph, keys))

    def update(self, side: str, own: Sealed, its: Sealed, base: Background, xi_star: float, weights: Weights) -> Half:
        """The half-sweep of one side: q(pi), s, q(b_i) and q(u_i), row by row."""
        graph = self.new_graph()
        old, others, ground = graph.hold("own", own), graph.hold("its", its), graph.hold("background", base)
        star = 2 * lambda_of(xi_star)
        whole = self.job.plan.whole[side]
        if self.job.plan.steps and not whole:
            return self._close(
                side,
                self.run(
                    f"update {side}",
                    graph,
                    self._descend(graph, Gathering(side, own, its, star, [], weights.log_z, range(0)), ground, weights),
                ),
            )
        stats = [] if whole else self._gather(graph, side, old, others, star, weights)
        keys = []
        for block in range(len(self.job.plan.places[side])):
            logits = weights.block(block)
            rest = (None if logits is None else graph.hold(f"logits-{block}", logits), weights.log_z, block)
            task, source = (tasks.update_block, others) if whole else (tasks.solve_block, stats[block])
            keys.append(graph.add(f"update-{side}", block, task, graph.job, side, old, source, ground, star, *rest))
        return self._close(side, self.run(f"update {side}", graph, keys))

    def select(self, side: str, own: Sealed, its: Sealed) -> tuple[list[np.ndarray], Observed]:
        """Selection statistics of every block of a side, and what they say of xi*."""
        graph = self.new_graph()
        old = graph.hold("own", own)
        stats = self._select(graph, side, old, graph.hold("its", its))
        keys = [
            graph.add(f"observe-{side}", block, tasks.observed_sums, graph.job, side, old, key, block)
            for block, key in enumerate(stats)
        ]
        results = self.run(f"select {side}", graph, stats + keys)
        weight, square = (float(total) for total in np.array(results[len(stats) :]).sum(0))
        return results[: len(stats)], Observed(weight, square)

    def weigh(
        self, side: str, own: Sealed, stats: list[np.ndarray] | None, base: Background, xi_star: float
    ) -> Weights:
        """s or t of a side from its selection statistics; None where they are fixed."""
        graph = self.new_graph()
        old, ground = graph.hold("own", own), graph.hold("background", base)
        keys = [
            graph.add(
                f"weigh-{side}", block, tasks.weigh_block, graph.job, side, old,
                None if stats is None else graph.hold(f"selection-{block}", stats[block]), ground, xi_star, block,
            )
            for block in range(len(self.job.plan.places[side]))
        ]  # fmt: skip
        weighed = self.run(f"weigh {side}", graph, keys)
        return Weights([logits for logits, _ in weighed], log_sum_exp(part for _, part in weighed))

    def finish(
        self, state: Sealed, own: Background, base: Background, xi_star: float, before: dict[str, Any],
        renew: bool = False,
    ) -> End:  # fmt: skip
        """The selection pass over a finished state: the pairs' part of its bound, and the users' next weights.

        Where it is to `renew` xi*, that is found from the same pass. Beside it the tags of both sides are updated, from
        what was `before`.
        """
        graph = self.new_graph()
        whole, ground = graph.hold("state", state), graph.hold("background", base)
        stats: list[Any] = [None] * len(self.job.plan.places["users"])
        if self.job.plan.long != "users":
            stats = self._select(graph, "users", whole, whole)
        keys = [
            graph.add("finish-users", block, tasks.finish_block, graph.job, whole, key, ground, xi_star, block)
            for block, key in enumerate(stats)
        ]
        tagging = [
            graph.add(f"tags-{side}", 0, tags.fit_tags, graph.job, side, graph.hold(f"tags-before-{side}", old), whole)
            for side, old in before.items()
        ]
        results = self.run("bound", graph, keys + tagging)
        results, tagged = results[: len(keys)], results[len(keys) :]
        self.files |= {key: (size, check) for part in tagged for key, size, check in part.entries}
        self.files |= {result.entry[0]: result.entry[1:] for result in results}
        shown = float(np.sum([result.shown for result in results]))
        message = float(np.sum([result.message for result in results]))
        if renew:
            observed = np.sum([result.observed for result in results], axis=0)
            xi_star = update_xi_star(xi_star, own, base, float(observed[SQUARE]), float(observed[WEIGHT]))
            message = observed_message(observed, xi_star)
        if self.job.settings.selection == "counts":
            message += whole_message(own, base, xi_star)
        normaliser = log_sum_exp(result.normaliser for result in results)
        return End(shown, message, xi_star, normaliser, float(np.sum([part.bound for part in tagged])))

    def measure_discount(self) -> Discount:
        """What discounted counts sum to: once before a fit."""
        graph = self.new_graph()
        keys = [
            graph.add("measure", block, start.sum_columns, graph.job, block)
            for block in range(self.job.plan.cuts[self.job.plan.long].blocks)
        ]
        (sums,) = self.run("measure", graph, [graph.tree("measure", 0, tasks.add_up, keys)])
        counts = self.job.counts
        return Discount.measure(self.job.settings.discount, counts.total, counts.marginal(self.job.plan.short), sums)

    # Parts of graphs

    def _powers(self, side: str) -> float:
        """sum (alpha + c_i)^beta over a side."""
        graph = self.new_graph()
        keys = [
            graph.add(f"measure-{side}", block, start.sum_powers, graph.job, side, block)
            for block in range(len(self.job.plan.places[side]))
        ]
        return float(np.sum(self.run(f"measure {side}", graph, keys)))

    def _select(self, graph: Graph, side: str, own: str, its: str) -> list[str]:
        """Nodes for the selection statistics of every block of a side; a key a block."""
        cut = self.job.plan.cuts[side]
        roots = []
        for tile_block in range(cut.blocks):
            keys = [
                graph.add(
                    f"select-{side}", f"{tile_block}-{group}", tasks.select_tile, graph.job, side, own, its,
                    tile_block, group,
                )
                for group in range(cut.groups)
            ]  # fmt: skip
            whole = graph.tree("selection", tile_block, tasks.add_up, keys)
            if side == self.job.plan.long:  # a tile's rows are a block
                roots.append(whole)
                continue
            roots += [
                graph.add("take-selection", block, tasks.take_rows, graph.job, side, whole, block)
                for block in self.job.plan.tile_blocks[side][tile_block]
            ]
        return roots

    def _descend(self, graph: Graph, every: Gathering, ground: str, weights: Weights) -> list[str]:
        """Nodes for the conjugate gradients of every block of the short side; a key a block."""
        roots = []
        for bundle in self.job.plan.bundles(every.side, self.job.room.bundle):
            mine = replace(every, logits=[weights.block(block) for block in bundle], blocks=bundle)
            what = graph.hold(f"rows-{bundle[0]}", mine)
            sums = self._add_shares(graph, f"{every.side}-sums", bundle, by_steps.gather_sums, what)
            standing = [
                graph.add("begin", block, by_steps.begin_block, graph.job, what, key, ground, block)
                for block, key in zip(bundle, sums, strict=True)
            ]
            for step in range(self.job.plan.steps):
                ahead = [
                    graph.add(f"direction-{step}", block, by_steps.direction, graph.job, key)
                    for block, key in zip(bundle, standing, strict=True)
                ]
                last = step == self.job.plan.steps - 1
                products = self._add_shares(
                    graph, f"{every.side}-step-{step}", bundle, by_steps.gather_products, what, ahead, last
                )
                standing = [
                    graph.add(f"step-{step}", block, by_steps.step_block, graph.job, key, product, ground, last)
                    for block, key, product in zip(bundle, standing, products, strict=True)
                ]
            roots += [
                graph.add(f"update-{every.side}", block, by_steps.settle_block, graph.job, what, key, block)
                for block, key in zip(bundle, standing, strict=True)
            ]
        return roots

    def _add_shares(
        self, graph: Graph, name: str, bundle: range, task: Callable[..., Any], *arguments: Any
    ) -> list[str]:
        """Nodes that gather something for a bundle over all shares of the columns, added up block by block."""
        gathered = [
            graph.add(f"gather-{name}", f"{bundle[0]}-{share}", task, graph.job, *arguments, share)
            for share in range(len(self.job.plan.shares))
        ]
        roots = []
        for k, block in enumerate(bundle):
            parts = [
                graph.add(f"pick-{name}", f"{block}-{share}", tasks.pick, graph.job, key, k)
                for share, key in enumerate(gathered)
            ]
            roots.append(graph.tree(name, block, tasks.add_up, parts))
        return roots

    def _gather(self, graph: Graph, side: str, own: str, its: str, star: float, weights: Weights) -> list[str]:
        """Nodes for the statistics of every block of the short side; a key a block."""
        roots = []
        for bundle in self.job.plan.bundles(side, self.job.room.bundle):
            logits = graph.hold(f"all-logits-{bundle[0]}", [weights.block(block) for block in bundle])
            task = tasks.gather_statistics, side, own, its, star, logits, weights.log_z, bundle
            roots += self._add_shares(graph, side, bundle, *task)
        return roots

    def _close(self, side: str, updated: list[tasks.Updated]) -> Half:
        """What the blocks of a side add up to, always in the blocks' order."""
        self.files |= {key: (size, check) for part in updated for key, size, check in part.entries}
        packed = np.sum([part.background for part in updated], axis=0)
        return Half(Background(self.job.settings.factors, packed), SideSums.add([part.sums for part in updated]))
