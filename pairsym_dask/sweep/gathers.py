"""Parts of graphs that gather for the short side: sums over shares of the columns, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat
from typing import Any

import numpy as np

from ..run.bundles import ARITY
from ..run.execute import Attempt, Graph
from ..run.producers import spread_out
from ..store.arrays import Sealed
from . import steps as by_steps
from . import tasks
from .job import Job
from .spread import Spread, spread
from .steps import Gathering


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


class Gathers(Attempt[Job]):
    """An attempt at a sweep that can gather."""

    @cached_property
    def arity(self) -> int:
        """Of sums: on a cluster tasks are dear."""
        return ARITY if self.hands.threads else 2

    @cached_property
    def _spread(self) -> Spread:
        return spread(self.job.plan, self.job.room, self.hands, self.job.row_pairs(self.job.plan.short))

    def descend(self, graph: Graph, every: Gathering, ground: str, weights: Weights) -> list[str]:
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
            root = [graph.tree(name, bundle[0], tasks.add_up, gathered, self.arity)]
            return [key for piece in pieces for key in cut(root, piece)]
        parts = [cut(gathered, piece) for piece in pieces]
        before = len(graph.nodes)
        roots = [
            graph.tree(name, piece[0], tasks.add_up, mine, self.arity)
            for piece, mine in zip(pieces, parts, strict=True)
        ]
        if self.hands.threads:  # large parts come from everywhere: who adds them up should have nothing else to do
            spread_out(graph, list(graph.nodes)[before:])
        return roots

    def solve(
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
