"""Parts of graphs that gather for the short side: sums over shares of the columns, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat
from typing import Any

import numpy as np

from ..run.bundles import ARITY
from ..run.execute import Attempt
from ..run.graph import Graph
from ..run.placement import evenly, spread_out
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

    @cached_property
    def _slots(self) -> Iterator[str] | None:
        """Workers for the gathering tasks of a pass in turn; None where some of them would get a second one.

        dask would look for the worker where each of them, and what follows from it, begins soonest, by what it guesses
        of durations: some would wait for others that are long on another worker.
        """
        workers, how = self.hands.slots, self._spread
        return evenly(workers, len(how.bundles) * len(how.shares)) if how.placed(len(workers)) else None

    @cached_property
    def _adders(self) -> Iterator[str] | None:
        """Workers for the first sums of what they have gathered."""
        if self._slots is None:
            return None
        pieces = sum(len(self._spread.pieces(bundle)) for bundle in self._spread.bundles)
        return evenly(self.hands.slots, pieces * -(-len(self._spread.shares) // self.arity))

    def descend(self, graph: Graph, every: Gathering, ground: str, weights: Weights) -> list[str]:
        """Nodes for the conjugate gradients of every block of the short side; a key a piece of a bundle."""
        roots, plan = [], self.job.plan
        theirs = self._theirs(graph, every.its)
        nothing = replace(every.its, manifest={})  # each gathering task is given what it meets
        for bundle in self._spread.bundles:
            logits, own = [weights.block(block) for block in bundle], self.job.part(every.own, every.side, bundle)
            rows = graph.hold(f"rows-{bundle[0]}", replace(every, own=own, its=nothing, logits=logits, blocks=bundle))
            pieces, name = self._spread.pieces(bundle), f"{every.side}-sums"
            gathered = self._gather(graph, name, bundle, tasks.gather_steps, by_steps.gather_sums, theirs, rows)
            standing = [
                graph.add(
                    "begin", piece[0], tasks.each, graph.job, by_steps.begin_block, (1, 3), rows, key, ground, piece,
                    near=key,
                )
                for piece, key in zip(pieces, self._add_shares(graph, name, bundle, gathered), strict=True)
            ]  # fmt: skip
            stays = self._stays(graph, every.side, bundle, gathered)
            for step in range(plan.short_steps):
                ahead = [
                    graph.add(
                        f"direction-{step}", piece[0], tasks.each, graph.job, by_steps.direction, (0,), key, near=key
                    )
                    for piece, key in zip(pieces, standing, strict=True)
                ]
                last, name = step == plan.short_steps - 1, f"{every.side}-step-{step}"
                gather = tasks.gather_steps, by_steps.gather_products
                given = [(keys, last) for keys in self._pass_on(graph, step, pieces, ahead, stays)]
                gathered = self._gather(graph, name, bundle, *gather, theirs, rows, stays=stays, given=given)
                # The last products of rows without variances are a number a row: bundles need not be cut for them.
                whole = standing if last and plan.cold(self.job.settings) else []
                products = self._add_shares(graph, name, bundle, gathered, whole)
                standing = [
                    graph.add(
                        f"step-{step}", piece[0], tasks.each, graph.job, by_steps.step_block, (0, 1), key, product,
                        ground, last, near=key,
                    )
                    for piece, key, product in zip(pieces, standing, products, strict=True)
                ]  # fmt: skip
            roots += [
                graph.add(
                    f"update-{every.side}", piece[0], tasks.each, graph.job, by_steps.settle_block, (1, 2), rows, key,
                    piece, near=key,
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

    def _stays(self, graph: Graph, side: str, bundle: range, gathered: list[str]) -> list[str]:
        """Nodes with the weights of a bundle's pairs, for the steps; on a cluster, where others may take them."""
        if not self.hands.threads:
            return []
        kept = [by_steps.Kept.of(self.job, side, bundle, run) for run in self._spread.shares]
        return [
            graph.add("weights", (bundle[0], run[0]), by_steps.take_weights, where, key, near=key)
            for run, where, key in zip(self._spread.shares, kept, gathered, strict=True)
        ]

    def _pass_on(
        self, graph: Graph, step: int, pieces: list[range], ahead: list[str], stays: list[str]
    ) -> list[list[str]]:
        """The directions of a bundle's pieces as every run of shares is given them.

        All who gather need all of them: who made one sends it to few, and those to the others.
        """
        relays = self._spread.relays()
        if self._slots is None or len(relays) < 2:
            return [ahead] * len(self._spread.shares)
        found: list[list[str]] = []
        for run in relays:
            near = stays[run.start : run.stop]
            passed = [
                graph.add(f"pass-on-{step}", (piece[0], run.start), tasks.pass_on, key, near=near[k % len(near)])
                for k, (piece, key) in enumerate(zip(pieces, ahead, strict=True))
            ]
            found += [passed] * len(run)
        return found

    def _gather(
        self, graph: Graph, name: str, bundle: range, gather: Callable[..., Any], task: Callable[..., Any],
        theirs: list[str], *rest: Any, stays: list[str] | None = None, given: Sequence[tuple[Any, ...]] = (),
    ) -> list[str]:  # fmt: skip
        """Nodes that gather something for a bundle; a key a run of shares. They go where the pairs' weights stay.

        Each run may be `given` something of its own.
        """
        slots = repeat(None) if stays or self._slots is None else self._slots
        gathered = [
            graph.add(
                f"gather-{name}", (bundle[0], run[0]), gather, graph.job, task, run, mine, *rest, *more,
                *filter(None, [stay]), at=slot, near=stay,
            )
            for run, mine, stay, more, slot in zip(
                self._spread.shares, theirs, stays or repeat(None), given or repeat(()), slots, strict=False
            )
        ]  # fmt: skip
        if self.hands.threads and not stays and self._slots is None:
            spread_out(graph.nodes, gathered)
        return gathered

    def _add_shares(
        self, graph: Graph, name: str, bundle: range, gathered: list[str], whole: Sequence[str] = ()
    ) -> list[str]:
        """Nodes that add up what was gathered over all shares of the columns; a key a piece.

        A bundle is cut into pieces before it is added up, or as a `whole` afterwards, near a task of each piece.
        """
        pieces = self._spread.pieces(bundle)

        def cut(keys: list[str], piece: range, near: Sequence[str]) -> list[str]:
            if len(pieces) == 1:
                return keys
            part = slice(piece.start - bundle.start, piece.stop - bundle.start)
            return [
                graph.add(f"pick-{name}", (piece[0], k), tasks.pick, key, part, near=where)
                for k, (key, where) in enumerate(zip(keys, near, strict=True))
            ]

        if whole:
            root = [graph.tree(name, bundle[0], tasks.add_up, gathered, self.arity)]
            return [key for piece, near in zip(pieces, whole, strict=True) for key in cut(root, piece, [near])]
        parts = [cut(gathered, piece, gathered) for piece in pieces]
        before = len(graph.nodes)
        roots = [
            graph.tree(name, piece[0], tasks.add_up, mine, self.arity, self._adders)
            for piece, mine in zip(pieces, parts, strict=True)
        ]
        if self.hands.threads and self._adders is None:
            # large parts come from everywhere: who adds them up should have nothing else to do
            spread_out(graph.nodes, list(graph.nodes)[before:])
        return roots

    def solve(
        self, graph: Graph, side: str, own: str, its: Sealed, ground: str, star: float, weights: Weights
    ) -> list[str]:
        """Nodes that gather the statistics of every block of the short side, and solve it; a key a piece."""
        theirs, roots = self._theirs(graph, its), []
        for bundle in self._spread.bundles:
            logits = weights.hold(graph, bundle)
            rest = side, own, star, logits, weights.log_z, bundle
            gathered = self._gather(graph, side, bundle, tasks.gather_each, tasks.gather_statistics, theirs, *rest)
            stats = self._add_shares(graph, side, bundle, gathered)
            for piece, key in zip(self._spread.pieces(bundle), stats, strict=True):
                mine = [logits[block - bundle.start] for block in piece]
                shared = side, own, key, ground, star, mine, weights.log_z, piece
                update = tasks.each, graph.job, tasks.solve_block, (2, 5, 7), *shared
                roots.append(graph.add(f"update-{side}", piece[0], *update, near=key))
        return roots
