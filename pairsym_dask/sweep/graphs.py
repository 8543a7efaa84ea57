"""The graphs of a sweep: one method a graph, each a pass over blocks, with what its results add up to.

`fit.py` says in which order they run, and what for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat
from typing import Any

import numpy as np

from ..kernels.rows import SQUARE, WEIGHT
from ..run.bundles import ARITY
from ..run.execute import Attempt, Graph
from ..run.producers import spread_out
from ..settings import other
from ..store.arrays import Sealed
from ..store.commit import Commit
from . import finish, start, tags, tasks
from . import steps as by_steps
from .background import Background, lambda_of, observed_message, update_xi_star, whole_message
from .costs import FINISH, GATHER, SELECT, START, UPDATE, pass_seconds, unit_seconds
from .discount import Discount
from .elbo import SideSums, log_sum_exp
from .job import Job
from .record import decode_background
from .spread import Spread, spread
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

    def hold(self, graph: Graph, blocks: Iterable[int]) -> list[str | None]:
        """A key for each of some blocks, None where the generation before holds them."""
        if self.logits is None:
            return [None for _ in blocks]
        return [graph.hold(f"logits-{block}", self.logits[block]) for block in blocks]


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
            keys = self._descend(graph, every, ground, weights)
        else:
            keys = self._solve(graph, side, old, its, ground, star, weights)
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
        self.files |= {key: (size, check) for part in (*tagged, ended) for key, size, check in part.entries}
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
        (sums,) = self.run("measure", graph, [graph.tree("measure", 0, tasks.add_up, keys, self._arity)])
        return Discount.measure(self.job.settings.discount, counts.total, counts.marginal(plan.short), sums)

    # Parts of graphs

    @cached_property
    def _arity(self) -> int:
        """Of sums: on a cluster tasks are dear."""
        return ARITY if self.hands.threads else 2

    @cached_property
    def _spread(self) -> Spread:
        return spread(self.job.plan, self.job.room, self.hands, self.job.row_pairs(self.job.plan.short))

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
                    f"select-{side}", f"{block}-0", tasks.select_tile, graph.job, side,
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
                    f"select-{side}", f"{tile_block}-{run[0]}", tasks.gather_each, graph.job, tasks.select_tile, run,
                    side, mine, others, tile_block,
                )
                for run, others in zip(runs, theirs, strict=True)
            ]  # fmt: skip
            whole = graph.tree("selection", tile_block, tasks.add_up, keys, self._arity)
            roots += [
                graph.add("take-selection", block, tasks.take_rows, graph.job, side, whole, block) for block in blocks
            ]
        return roots

    def _descend(self, graph: Graph, every: Gathering, ground: str, weights: Weights) -> list[str]:
        """Nodes for the conjugate gradients of every block of the short side; a key a piece of a bundle."""
        roots, plan = [], self.job.plan
        theirs = self._theirs(graph, every.its)
        nothing = replace(every.its, manifest={})  # each gathering task is given what it meets
        for bundle in self._spread.bundles:
            logits, own = [weights.block(block) for block in bundle], self.job.part(every.own, every.side, bundle)
            rows = graph.hold(f"rows-{bundle[0]}", replace(every, own=own, its=nothing, logits=logits, blocks=bundle))
            pieces = self._spread.pieces(bundle)
            gather = tasks.gather_steps, by_steps.gather_sums
            sums = self._add_shares(graph, f"{every.side}-sums", bundle, *gather, theirs, rows)
            standing = [
                graph.add(
                    "begin", piece[0], tasks.each, graph.job, by_steps.begin_block, (1, 3), rows, key, ground, piece
                )
                for piece, key in zip(pieces, sums, strict=True)
            ]
            stays = self._stays(graph, every.side, bundle, f"{every.side}-sums")
            for step in range(plan.short_steps):
                ahead = [
                    graph.add(f"direction-{step}", piece[0], tasks.each, graph.job, by_steps.direction, (0,), key)
                    for piece, key in zip(pieces, standing, strict=True)
                ]
                last = step == plan.short_steps - 1
                gather = tasks.gather_steps, by_steps.gather_products
                name = f"{every.side}-step-{step}"
                # The last products of rows without variances are a number a row: bundles need not be cut for them.
                whole = last and plan.cold(self.job.settings)
                products = self._add_shares(
                    graph, name, bundle, *gather, theirs, rows, ahead, last, stays=stays, whole=whole
                )
                standing = [
                    graph.add(
                        f"step-{step}", piece[0], tasks.each, graph.job, by_steps.step_block, (0, 1), key, product,
                        ground, last,
                    )
                    for piece, key, product in zip(pieces, standing, products, strict=True)
                ]  # fmt: skip
            roots += [
                graph.add(
                    f"update-{every.side}", piece[0], tasks.each, graph.job, by_steps.settle_block, (1, 2), rows, key,
                    piece,
                )
                for piece, key in zip(pieces, standing, strict=True)
            ]  # fmt: skip
        return roots

    def _theirs(self, graph: Graph, its: Sealed) -> list[str]:
        """What every run of shares reads of the long side, a key each."""
        plan = self.job.plan
        return [
            graph.hold(
                f"its-{run[0]}",
                self.job.part(its, plan.long, plan.visited(group for share in run for group in plan.shares[share])),
            )
            for run in self._spread.shares
        ]

    def _stays(self, graph: Graph, side: str, bundle: range, name: str) -> list[tuple[str]]:
        """Nodes with the weights of a bundle's pairs, for the steps; on a cluster, where others may take them."""
        runs = self._spread.shares if self.hands.threads else []
        made = [f"gather-{name}-{graph.tag}-{bundle[0]}-{run[0]}" for run in runs]
        kept = [by_steps.Kept.of(self.job, side, bundle, run) for run in runs]
        return [
            (graph.add("weights", f"{bundle[0]}-{run[0]}", by_steps.take_weights, where, key),)
            for run, where, key in zip(runs, kept, made, strict=True)
        ]

    def _add_shares(
        self, graph: Graph, name: str, bundle: range, gather: Callable[..., Any], task: Callable[..., Any],
        theirs: list[str], *rest: Any, stays: list[Any] | None = None, whole: bool = False,
    ) -> list[str]:  # fmt: skip
        """Nodes that gather something for a bundle over all shares of the columns, added up; a key a piece.

        A bundle is cut into pieces before it is added up, or as a `whole` afterwards.
        """
        gathered = [
            graph.add(f"gather-{name}", f"{bundle[0]}-{run[0]}", gather, graph.job, task, run, mine, *rest, *stay)
            for run, mine, stay in zip(self._spread.shares, theirs, stays or repeat(()), strict=False)
        ]
        if self.hands.threads and not stays:  # else tasks go where the weights are
            spread_out(graph, gathered)
        pieces = self._spread.pieces(bundle)

        def cut(keys: list[str], piece: range) -> list[str]:
            if len(pieces) == 1:
                return keys
            part = slice(piece.start - bundle.start, piece.stop - bundle.start)
            return [graph.add(f"pick-{name}", f"{piece[0]}-{k}", tasks.pick, key, part) for k, key in enumerate(keys)]

        if whole:
            root = [graph.tree(name, bundle[0], tasks.add_up, gathered, self._arity)]
            return [key for piece in pieces for key in cut(root, piece)]
        return [graph.tree(name, piece[0], tasks.add_up, cut(gathered, piece), self._arity) for piece in pieces]

    def _solve(
        self, graph: Graph, side: str, own: str, its: Sealed, ground: str, star: float, weights: Weights
    ) -> list[str]:
        """Nodes that gather the statistics of every block of the short side, and solve it; a key a piece."""
        theirs, roots = self._theirs(graph, its), []
        for bundle in self._spread.bundles:
            logits = weights.hold(graph, bundle)
            rest = side, own, star, logits, weights.log_z, bundle
            stats = self._add_shares(graph, side, bundle, tasks.gather_each, tasks.gather_statistics, theirs, *rest)
            for piece, key in zip(self._spread.pieces(bundle), stats, strict=True):
                mine = [logits[block - bundle.start] for block in piece]
                shared = side, own, key, ground, star, mine, weights.log_z, piece
                roots.append(
                    graph.add(f"update-{side}", piece[0], tasks.each, graph.job, tasks.solve_block, (2, 5, 7), *shared)
                )
        return roots

    def _close(self, side: str, updated: list[tasks.Updated]) -> Half:
        """What the blocks of a side add up to, always in the blocks' order."""
        self.files |= {key: (size, check) for part in updated for key, size, check in part.entries}
        packed = np.sum([part.background for part in updated], axis=0)
        return Half(Background(self.job.settings.factors, packed), SideSums.add([part.sums for part in updated]))
