"""Algorithm 1: the only place that knows the order of updates, and how a fit begins, goes on and ends.

A sweep is five graphs (`graphs.py`): users are updated; the items' selection statistics give xi*, then t; items are
updated; and the selection pass over the new state gives the bound of exactly what is committed, and the users' next s.
Where s and t are fixed, the items' selection statistics would be for xi* alone: it comes from the last pass instead,
and t is found in the first sweep of a fit only.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from ..errors import InputError, NumericError, StoreError
from ..run.execute import Executor
from ..run.progress import Progress
from ..run.workers import Requirements
from ..settings import SIDES, Settings
from ..store.arrays import ArraySpec, Manifest
from ..store.commit import Commit, generation_arrays
from ..store.counts import RECORD, Counts
from ..store.discard import set_aside_damaged
from ..store.model_store import ModelStore
from ..store.shards import Shards
from ..store.tags import Tags
from .background import update_xi_star
from .discount import Discount
from .elbo import counted_share, side_bound
from .gathers import Weights
from .graphs import End, Half, Passes
from .job import Job
from .plan import Plan
from .record import decode_background, encode_background, relative_path
from .resume import (
    check_options,
    check_same,
    check_same_tags,
    check_warm,
    fading_of,
    parse_keep,
    settled,
    solver_of,
    warn_of_fall,
)
from .room import Room, make_room
from .shelf import forget
from .start import Earlier
from .tag_prior import TagPrior
from .tags import Effects
from .turn import Turn

Callback = Callable[[int, float, float], None]
GRAPHS = 5  # of a sweep


@dataclass(frozen=True)
class Warm:
    """A committed sweep to start from, and for every row of each side the row there, -1 for new symbols."""

    commit: Commit
    rows: dict[str, np.ndarray]
    tags: dict[str, Tags] = field(default_factory=dict)  # tag stores of that sweep


def fit(
    counts: Counts,
    settings: Settings,
    store: ModelStore,
    *,
    sweeps: int,
    tol: float | None = None,
    memory: int | str | None = None,
    client: Any = None,
    threads: int | None = None,
    progress: bool = False,
    callback: Callback | None = None,
    keep: int | Iterable[int] | None = None,
    discard_damaged: bool = False,
    warm: Warm | None = None,
    tags: dict[str, Tags] | None = None,
) -> Commit:
    """Fit until `sweeps` sweeps are committed, going on from what the store holds; the last commit.

    `tags` are the tag stores of the sides that have one.
    """
    check_options(sweeps, tol, keep)
    if counts.nnz == 0:
        raise InputError(f"{counts.path} holds no pairs: there is nothing to fit")
    kept = parse_keep(keep)
    executor = Executor(client, threads)
    priors = {
        side: TagPrior.make(side, tags[side], counts, fading_of(store, side)) for side in SIDES if tags and side in tags
    }
    plan = Plan.make(counts, settings, solver_of(store), sum(prior.nbytes(settings) for prior in priors.values()))
    plan = replace(plan, shards=choose_shards(store, plan, settings, priors))
    room = make_room(plan, *executor.resources(memory), executor.processes)
    start = None if warm is None else warm.commit
    with held(store, counts, executor, start, discard_damaged, plan.shards is not None) as needed:
        run = Fit(counts, settings, store, plan, room, executor, Progress(progress, sweeps), kept, needed, warm, priors)
        return run.go_on(sweeps, tol, callback)


def arrays_of(plan: Any, settings: Settings, tags: dict[str, TagPrior]) -> dict[str, ArraySpec]:
    """Arrays of the generations of a fit or a chain."""
    rows = {side: plan.cuts[side].rows for side in SIDES}
    return generation_arrays(rows, plan.blocks, settings, {side: prior.tags.shape[1] for side, prior in tags.items()})


def choose_shards(store: ModelStore, plan: Any, settings: Settings, tags: dict[str, TagPrior]) -> dict[str, int] | None:
    """Blocks a shard of a fit or a chain, None where every chunk is a file; decided once, when a store begins."""
    return store.choose_runs(arrays_of(plan, settings, tags), plan.long)


@contextmanager
def held(
    store: ModelStore, counts: Counts, executor: Executor, start: Commit | None, discard_damaged: bool, sharded: bool
) -> Iterator[Requirements | None]:
    """Hold a store, made if need be, while it is written to; what is asked of a cluster's workers."""
    if not (discard_damaged and store.holds_commits()):
        store.create(sharded)
    with store.lock() as lock:
        if discard_damaged:
            for line in set_aside_damaged(store):
                warnings.warn(f"set aside as damaged: {line}", UserWarning, stacklevel=4)
        tokens = [(counts.storage, RECORD), (store.storage, lock.key)]
        if start is not None:
            tokens.append((start.storage, f"{start.folder}/zarr.json"))
        try:
            yield executor.check_workers(tokens)
        finally:
            forget()  # the next fit, or the rest of a notebook, wants the memory
            executor.tell_workers(forget)


@dataclass
class Fit:
    """One fit under way."""

    measure: ClassVar[str] = "elbo"  # the scalar of a commit that shows how far it is

    counts: Counts
    settings: Settings
    store: ModelStore
    plan: Plan
    room: Room
    executor: Executor
    display: Progress
    kept: Callable[[int], bool]
    needed: Requirements | None
    warm: Warm | None
    tags: dict[str, TagPrior] = field(default_factory=dict)
    attempt: str = ""  # folder of the generation that is being written
    discount: Discount | None = None
    fixed: Weights | None = None  # t where it is the same in all sweeps, once it is known
    began: float = 0.0

    def __post_init__(self) -> None:
        self.specs = arrays_of(self.plan, self.settings, self.tags)
        self.shards = None if self.plan.shards is None else Shards.of(self.specs, self.plan.shards, self.store.url)
        self.shared = {  # by the records of all sweeps
            "settings": self.settings.to_dict(),
            "counts": {"path": relative_path(self.counts.path, self.store.url), "digest": self.counts.digest},
            "rows": {side: self.plan.cuts[side].rows for side in SIDES},
            "blocks": self.plan.blocks,
        }
        if self.tags:
            self.shared["tags"] = {
                side: {
                    "path": relative_path(prior.tags.path, self.store.url),
                    "digest": prior.tags.digest,
                    "tags": prior.tags.shape[1],
                    **({"fades": True} if prior.fades and self.settings.prior_growth else {}),
                }
                for side, prior in self.tags.items()
            }
        self.job = self.make_job()

    def make_job(self) -> Any:
        """What the tasks of all sweeps share."""
        where = self.room, self.store.storage, self.specs, self.needed
        return Job.make(self.counts, self.settings, self.plan, *where, self.tags, self.shards)

    def go_on(self, sweeps: int, tol: float | None, callback: Callback | None) -> Commit:
        """Sweep until enough are committed; the store is held by this fit."""
        store, display = self.store, self.display
        commits = store.take_up()
        if commits:
            check_same(commits[0], self.counts, self.settings, self.plan, store)
            check_same_tags(commits[0], {side: prior.tags for side, prior in self.tags.items()}, store)
            if self.warm is not None:
                check_warm(commits, self.warm.commit, store)
            commits[-1].sealed.check_sizes()
        store.mend(commits)
        store.clean(commits)
        try:
            while not commits or (commits[-1].sweep < sweeps and not settled(commits, tol)):
                began = time.perf_counter()
                store.check_space(self.plan.generation_bytes(), commits)
                commits.append(self.sweep(commits[-1]) if commits else self.start())
                store.clean(commits)
                seconds = time.perf_counter() - began if commits[-1].sweep else 0.0
                value = commits[-1].scalar(self.measure)
                display.end_sweep(commits[-1].sweep, value, seconds, self.counts.nnz)
                self.look_at(commits)
                if callback is not None and commits[-1].sweep:
                    callback(commits[-1].sweep, value, seconds)
            store.storage.settle()
        except BaseException:
            self._abandon()
            raise
        finally:
            display.close()
        return commits[-1]

    def look_at(self, commits: list[Commit]) -> None:
        """Say it when the newest commit is not as it should be."""
        warn_of_fall(commits, self.settings)

    def _abandon(self) -> None:
        """Remove what a failed attempt wrote; on a cluster its tasks may still be writing: the clean-up waits there."""
        try:
            if self.attempt and self.executor.client is None:
                self.store.remove_generation(self.attempt)
            self.store.storage.settle()  # nothing goes on after the fit
        except (StoreError, OSError):
            pass  # the error under way is the one to tell

    def sweep(self, before: Commit) -> Commit:
        """One sweep of Algorithm 1 after a committed one; every `run.` step is one dask graph."""
        run = self._begin(before.sweep + 1, before)
        old, xi_star, base = before.sealed, before.scalar("xi_star"), run.base_of(before)
        s = Weights(None, before.scalar("log_z_next"))  # the generation before holds them
        last, stats = self.plan.xi_star_last, None

        if self.plan.first == "users":
            users = run.update("users", own=old, its=old, base=base, xi_star=xi_star, weights=s)  # q(pi), q(b), q(u)
            new = run.written()
            if not last:
                stats, observed = run.select("items", own=old, its=new)  # at (users new, items old)
                xi_star = update_xi_star(xi_star, users.background, base, observed.square, observed.weight)
            t = self._weigh_items(run, own=old, stats=stats, base=users.background, xi_star=xi_star)
            items = run.update("items", own=old, its=new, base=users.background, xi_star=xi_star, weights=t)
        else:  # s, t and xi* are fixed: the halves may change places
            t = self._weigh_items(run, own=old, stats=None, base=base, xi_star=xi_star)
            items = run.update("items", own=old, its=old, base=base, xi_star=xi_star, weights=t)
            new = run.written()
            users = run.update("users", own=old, its=new, base=items.background, xi_star=xi_star, weights=s)
        # Also log s for the next sweep, xi* where it comes last, and the effects of tags.
        before_tags = dict.fromkeys(self.tags, old)
        end = run.finish(run.written(), users.background, items.background, xi_star, before_tags, renew=last)
        return self._commit(run, before, users, items, t.log_z, end, self.bound(end, users, items))

    def _weigh_items(self, run: Passes, stats: list[np.ndarray] | None, **state: Any) -> Weights:
        """t of the items; without selection statistics it is the same in all sweeps."""
        if stats is not None:
            return run.weigh("items", stats=stats, **state)
        self.fixed = self.fixed or run.weigh("items", stats=None, **state)
        return self.fixed

    def start(self) -> Commit:
        """Commit the start: sweep 0."""
        run, warm, xi_star = self._begin(0, None), self.warm, 1.0
        if warm is None:
            users, items = run.begin("users"), run.begin("items")
        else:
            users, items = (run.take_over(side, self._earlier(warm, side), warm.rows[side]) for side in SIDES)
            xi_star = warm.commit.scalar("xi_star")
        first = {side: self._first_effects(side) for side in self.tags}
        end = run.finish(run.written(), users.background, items.background, xi_star, first)
        return self._commit(run, None, users, items, float("nan"), end, self.bound(end, users, items))

    def _first_effects(self, side: str) -> Effects:
        """Where the tags of a side begin: at their prior, or in a warm start where an earlier fit has left them."""
        prior = self.tags[side]
        effects = Effects.start(prior.number, self.settings)
        if self.warm is None or side not in self.warm.tags:
            return effects
        earlier = self.warm.tags[side]
        rows = np.append(earlier.links.find("items", prior.tags.tag_ids), earlier.shape[1])  # the level is the last one
        return effects.taken_over(self.warm.commit, side, rows)

    def bound(self, end: End, users: Half, items: Half) -> float:
        """The variational bound of a finished state."""
        censored = self.settings.censored_ratio * self.counts.total
        bound = end.shown + censored * end.message + end.tagged
        for side, half in zip(SIDES, (users, items), strict=True):
            rows = self.plan.cuts[side].rows
            bound += side_bound(half.sums, rows, self.counts.total, censored, self.settings)
        return bound

    def _begin(self, sweep: int, before: Commit | None) -> Passes:
        """A new attempt at a sweep, after a committed one."""
        files = self.open_attempt(sweep, GRAPHS - self.plan.xi_star_last - (self.fixed is not None))
        job = replace(self.job, folder=self.attempt)
        run = Passes(job, files, self.executor, self.display)
        if self.settings.discount and self.discount is None:
            self.discount = run.measure_discount()
        turn = None
        if before is not None and self.plan.turns(self.settings):
            turn = Turn.of(decode_background(before, self.plan.short), before.folder, self.settings.dtype)
        # The same passes go on, so that no two graphs of an attempt have one name: a cluster may still hold the first.
        run.job = replace(job, discount=self.discount, turn=turn, crowded=run.hands.crowded)
        return run

    def open_attempt(self, sweep: int, graphs: int) -> Manifest:
        """A new folder for an attempt at a sweep of so many graphs; the files that are in it."""
        self.began = time.perf_counter()
        self.attempt, files = self.store.begin_generation(sweep, self.specs, self.shards)
        self.display.start_sweep(sweep, graphs)
        return files

    def _earlier(self, warm: Warm, side: str) -> Earlier:
        """What the tasks of a warm start need; the earlier rows, all taken over, have weights that sum to one."""
        new = self.counts.marginal(side)[warm.rows[side] < 0]
        shares = counted_share(new, self.plan.cuts[side].rows, self.counts.total, self.settings.alpha)
        return Earlier(
            warm.commit,
            decode_background(warm.commit, side).average(warm.commit.settings.temperature),
            1.0 + float(shares.sum()),
        )

    def _commit(
        self, run: Passes, before: Commit | None, users: Half, items: Half, log_z_items: float, end: End, bound: float
    ) -> Commit:
        """Make a finished attempt real, unless its numbers cannot be."""
        sweep = 0 if before is None else before.sweep + 1
        scalars = {"xi_star": end.xi_star, "elbo": bound, "log_z_next": end.log_z, "log_z_items": log_z_items}
        for name in ("elbo", "xi_star", "log_z_next"):
            if not np.isfinite(scalars[name]):
                raise NumericError(
                    f"{name} of sweep {sweep} is {scalars[name]}; the last committed sweep is intact; "
                    'dtype="float64" or larger taus may help'
                )
        scalars["log_z_users"] = float("nan") if before is None else before.scalar("log_z_next")
        if self.discount is not None:
            scalars["discount_scale"] = self.discount.scale
        backgrounds = {side: half.background for side, half in zip(SIDES, (users, items), strict=True)}
        own = {
            "kept": self.kept(sweep),
            "solver": self.plan.solver,
            "backgrounds": {side: encode_background(background) for side, background in backgrounds.items()},
        }
        return self.close_attempt(run.files, before, scalars, own)

    def close_attempt(
        self, files: Manifest, before: Commit | None, scalars: dict[str, float], own: dict[str, Any]
    ) -> Commit:
        """Commit an attempt; `own` is what this kind of fit alone has in its records."""
        record = {
            "sweep": 0 if before is None else before.sweep + 1,
            "generation": self.attempt,
            "parent": None if before is None else before.record["digest"],
            "scalars": {name: float(value).hex() for name, value in scalars.items()},
            "seconds": round(time.perf_counter() - self.began, 4),
            "files": files,
            **self.shared,
            **own,
        }
        if before is None and self.warm is not None:
            start = self.warm.commit
            path = relative_path(start.storage.url, self.store.url)
            record["start"] = {"path": path, "sweep": start.sweep, "digest": start.record["digest"]}
        self.attempt = ""  # whatever happens to the answer, it may be a commit now
        return self.store.commit(record, self.specs, self.shards)
