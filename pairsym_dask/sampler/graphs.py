"""The graphs of a sweep of a chain: one a half-sweep, with what its results add up to; `chain.py` has their order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..run.execute import Attempt
from ..run.graph import Graph
from ..store.arrays import Sealed
from ..store.model_store import Commit
from ..sweep.tasks import each
from . import tags, tasks
from .hyper import Prior
from .shifts import Slope, has_shifts
from .tasks import Closed, DrawJob


@dataclass(frozen=True)
class Half:
    """A half-sweep's results beside what it wrote."""

    moments: np.ndarray  # of the side's rows [traits, bias, 1], less what tags add to their means
    selection: np.ndarray  # sums of the side's Gamma numbers, by component
    log_selection: float  # sum c_i log pi_i, or the items' with psi
    log_shown: float  # sum c_ij log sigma(a_ij) over observed pairs, before the side was drawn; see `kernels/draws`
    proposals: float
    censored: float
    shifted: float  # sum c_i t_i of the side's steps before it was drawn


class Passes(Attempt[DrawJob]):
    """The graphs of one attempt at a sweep."""

    def begin(self, side: str) -> Half:
        """Sweep 0 of one side from small random traits."""
        graph = self.new_graph()
        keys = [
            graph.add(f"start-{side}", run[0], each, graph.job, tasks.start_block, (1,), side, run)
            for run in self.job.plan.runs(side)
        ]
        return self._close(self.run(f"start {side}", graph, keys))

    def take_over(self, side: str, start: Commit, rows: np.ndarray | None, prior: Prior) -> Half:
        """Sweep 0 of one side from a committed fit; `rows` are the rows there, -1 for new symbols (None: the same)."""
        graph, plan = self.new_graph(), self.job.plan
        source, first = graph.hold("start", start), graph.hold("prior", prior)
        keys = []
        for run in plan.runs(side):
            there = [None if rows is None else rows[slice(*plan.row_range(side, block))] for block in run]
            shared = graph.job, tasks.take_over_block, (2, 4), side, source, there, first, run
            keys.append(graph.add(f"take-over-{side}", run[0], each, *shared))
        return self._close(self.run(f"start {side}", graph, keys))

    def draw(self, side: str, own: Sealed, its: Sealed, scale: np.ndarray, prior: Prior, its_prior: Prior) -> Half:
        """The half-sweep of one side; `scale` times the long side's selection are expected proposals, by component."""
        graph = self.new_graph()
        old, others, before = graph.hold("own", own), graph.hold("its", its), graph.hold("prior", prior)
        proposing = graph.hold("scale", scale)
        slope = graph.hold("slope", Slope.make(prior, its_prior)) if has_shifts(self.job.settings) else None
        if side == self.job.plan.long:
            keys = [
                graph.add(
                    f"draw-{side}", run[0], each, graph.job, tasks.draw_block, (6,), side, old, others, proposing,
                    before, slope, run,
                )
                for run in self.job.plan.runs(side)
            ]  # fmt: skip
        else:
            taken = None if slope is None else self._shift(graph, side, old, others, proposing, slope)
            keys, gathered = [], self._gather(graph, side, old, others, proposing, slope, taken)
            for block, stats in enumerate(gathered):
                shared = graph.job, tasks.draw_gathered_block, (2, 5), side, old, [stats], before, taken
                keys.append(graph.add(f"draw-{side}", block, each, *shared, range(block, block + 1)))
        return self._close(self.run(f"draw {side}", graph, keys))

    def begin_tags(self, side: str, start: Commit | None, rows: np.ndarray | None) -> None:
        """Sweep 0 of a side's tags; `rows` are their rows in a committed fit, -1 for new ones."""
        graph = self.new_graph()
        key = graph.add(f"start-tags-{side}", 0, tags.start_effects, graph.job, side, graph.hold("start", start), rows)
        self.add_files(self.run(f"start tags of {side}", graph, [key])[0])

    def draw_tags(self, side: str, before: Sealed, prior: Prior) -> None:
        """Draw a side's tags given its rows and their new prior."""
        graph = self.new_graph()
        old, state, its = graph.hold("before", before), graph.hold("state", self.written()), graph.hold("prior", prior)
        key = graph.add(f"draw-tags-{side}", 0, tags.draw_side, graph.job, side, old, state, its)
        self.add_files(self.run(f"draw tags of {side}", graph, [key])[0])

    def _shift(self, graph: Graph, side: str, own: str, its: str, proposing: str, slope: str) -> str:
        """Nodes for the steps of the short side; the key of those it takes."""
        ratios = [
            graph.add(f"weigh-{side}", share, tasks.weigh_share, graph.job, side, own, its, proposing, slope, share)
            for share in range(len(self.job.plan.shares))
        ]
        total = graph.tree(f"weights-{side}", 0, tasks.add_ratios, ratios)
        return graph.add(f"take-steps-{side}", 0, tasks.take_steps, graph.job, side, own, slope, total)

    def _gather(
        self, graph: Graph, side: str, own: str, its: str, proposing: str, slope: str | None, taken: str | None
    ) -> list[str]:
        """Nodes for the statistics of every block of the short side; a key a block."""
        roots, blocks, step = [], range(self.job.plan.count(side)), self.job.room.bundle
        for bundle in (blocks[k : k + step] for k in range(0, len(blocks), step)):
            gathered = [
                graph.add(
                    f"gather-{side}", (bundle[0], share), tasks.gather_pairs, graph.job, side, own, its, proposing,
                    slope, taken, bundle, share,
                )
                for share in range(len(self.job.plan.shares))
            ]  # fmt: skip
            for k, block in enumerate(bundle):
                parts = [
                    graph.add("pick-statistics", (block, share), tasks.pick, graph.job, key, k, block)
                    for share, key in enumerate(gathered)
                ]
                roots.append(graph.tree("statistics", block, tasks.add_up, parts))
        return roots

    def _close(self, found: list[list[Closed]]) -> Half:
        """What the blocks of a side add up to, always in the blocks' order."""
        closed = [part for some in found for part in some]
        self.add_files([entry for part in closed for entry in part.entries])
        sums = np.array([part.selection for part in closed])
        selection = np.array([np.sum(column) for column in np.ascontiguousarray(sums.T)])
        log_selection = float(np.sum([part.log_selection for part in closed]))
        log_shown, proposals, censored = (float(total) for total in np.sum([part.totals for part in closed], axis=0))
        return Half(
            np.sum([part.moments for part in closed], axis=0),
            selection,
            log_selection - self.job.counts.total * float(np.log(selection.sum())),
            log_shown,
            proposals,
            censored,
            float(np.sum([part.shifted for part in closed])),
        )
