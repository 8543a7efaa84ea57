"""Algorithm 1: the only place that knows the order of updates.

A sweep is four graphs: users are updated; the items' selection statistics give xi* and t; items are updated; and
the selection pass over the new state gives the bound of exactly what is committed, and the users' next s.
"""

from __future__ import annotations

import base64
import operator
import os
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InputError, NumericError, StoreError
from ..options import positive_number, whole_number
from ..run.execute import Executor, Steps
from ..run.progress import Progress
from ..run.workers import Pass
from ..settings import SIDES, Settings, other
from ..store.arrays import Manifest, Sealed
from ..store.counts import RECORD, Counts
from ..store.discard import set_aside_damaged
from ..store.model_store import Commit, ModelStore, generation_arrays
from ..store.storage import is_local
from . import tasks
from .background import Background, lambda_of, update_xi_star
from .elbo import SideSums, log_sum_exp, share, side_bound
from .plan import Plan, Room, make_room

Callback = Callable[[int, float, float], None]


@dataclass(frozen=True)
class Warm:
    """A committed sweep to start from, and for every row of each side the row there, -1 for new symbols."""

    commit: Commit
    rows: dict[str, np.ndarray]


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
) -> Commit:
    """Fit until `sweeps` sweeps are committed, going on from what the store holds; the last commit."""
    check_options(sweeps, tol, keep)
    if counts.nnz == 0:
        raise InputError(f"{counts.path} holds no pairs: there is nothing to fit")
    kept = parse_keep(keep)
    executor = Executor(client, threads)
    plan = Plan.make(counts, settings)
    room = make_room(plan, *executor.resources(memory))
    if not (discard_damaged and store.holds_commits()):
        store.create()
    with store.lock() as lock:
        if discard_damaged:
            for line in set_aside_damaged(store):
                warnings.warn(f"set aside as damaged: {line}", UserWarning, stacklevel=2)
        tokens = [(counts.storage, RECORD), (store.storage, lock.key)]
        if warm is not None:
            tokens.append((warm.commit.storage, f"{warm.commit.folder}/zarr.json"))
        passes = executor.check_workers(tokens)
        run = _Fit(counts, settings, store, plan, room, executor, Progress(progress, sweeps), kept, passes, warm)
        try:
            return run.go_on(sweeps, tol, callback)
        finally:
            tasks.forget()  # the next fit, or the rest of a notebook, wants the memory


def check_options(sweeps: int, tol: float | None, keep: int | Iterable[int] | None = None, **_: Any) -> None:
    """Refuse options of a fit that cannot be, before anything is written."""
    whole_number("sweeps", sweeps, least=0)
    if tol is not None:
        positive_number("tol", tol)
    parse_keep(keep)


def parse_keep(keep: int | Iterable[int] | None) -> Callable[[int], bool]:
    """Which sweeps are kept for good: every n-th, or those named."""
    if keep is None:
        return lambda sweep: False
    if isinstance(keep, (int, np.integer)) and not isinstance(keep, bool):
        if keep < 1:
            raise InputError(f"keep must be at least 1 (every keep-th sweep is kept), not {keep}")
        return lambda sweep: sweep % int(keep) == 0
    try:
        named = frozenset(operator.index(sweep) for sweep in keep)  # type: ignore[union-attr]
    except TypeError:
        raise InputError(f"keep must be a number n (every n-th sweep) or a list of sweeps, not {keep!r}") from None
    return named.__contains__


def _settled(commits: list[Commit], tol: float | None) -> bool:
    """Whether the bound's last relative change is within `tol`."""
    if tol is None or len(commits) < 3:  # the first change comes from the random start
        return False
    before, now = (commit.scalar("elbo") for commit in commits[-2:])
    return abs(now - before) <= tol * abs(now)


def _warn_of_fall(commits: list[Commit], settings: Settings) -> None:
    """Say it when the bound falls by more than rounding; with constant messages it may."""
    if len(commits) < 2 or settings.selection == "constant":
        return
    before, now = (commit.scalar("elbo") for commit in commits[-2:])
    rounding = 1e-10 if settings.dtype == "float64" else 1e-6
    if now < before - rounding * abs(before):
        warnings.warn(
            f"the bound fell by {before - now:.6g} ({(before - now) / abs(before):.1e} of it) in sweep "
            f"{commits[-1].sweep}, from {before:.10g} to {now:.10g}; it should only rise",
            UserWarning,
            stacklevel=2,
        )


def _check_same(first: Commit, counts: Counts, settings: Settings, plan: Plan, store: ModelStore) -> None:
    """Refuse to go on with other settings or other data, in words."""
    then, now = first.record["settings"], settings.to_dict()
    changed = [f"{name}={now[name]!r} (was {then[name]!r})" for name in now if then.get(name) != now[name]]
    if changed:
        raise StoreError(f"{store.url} holds a fit with other settings: {', '.join(changed)}; give another path")
    if first.record["counts"]["digest"] != counts.digest:
        raise StoreError(
            f"{store.url} holds a fit to other data than {counts.path} (it was {first.record['counts']['path']}); "
            "give another path"
        )
    if first.record["blocks"] != plan.blocks:
        raise StoreError(f"{store.url} was cut into other blocks than this pairsym_dask would; give another path")


def check_warm(commits: list[Commit], start: Commit, store: ModelStore) -> None:
    """Refuse to go on with a fit that did not start from this commit."""
    began = commits[0].record.get("start") if commits else None
    if commits and (began is None or began["digest"] != start.record["digest"]):
        raise StoreError(
            f"{store.url} holds a fit that did not start from sweep {start.sweep} of {start.storage.url}; "
            "give another path"
        )


class _Fit:
    """One fit under way."""

    def __init__(
        self,
        counts: Counts,
        settings: Settings,
        store: ModelStore,
        plan: Plan,
        room: Room,
        executor: Executor,
        display: Progress,
        kept: Callable[[int], bool],
        passes: Pass | None,
        warm: Warm | None,
    ) -> None:
        self.counts, self.settings, self.store = counts, settings, store
        self.plan, self.room, self.executor, self.display = plan, room, executor, display
        self.kept, self.passes, self.warm = kept, passes, warm
        self.attempt = ""  # folder of the generation that is being written
        self.graphs = 0
        self.specs = generation_arrays({side: plan.cuts[side].rows for side in SIDES}, plan.blocks, settings)
        self.censored = settings.censored_ratio * counts.total

    def go_on(self, sweeps: int, tol: float | None, callback: Callback | None) -> Commit:
        """Sweep until enough are committed; the store is held by this fit."""
        store, display = self.store, self.display
        commits = store.take_up()
        if commits:
            _check_same(commits[0], self.counts, self.settings, self.plan, store)
            if self.warm is not None:
                check_warm(commits, self.warm.commit, store)
            commits[-1].sealed.check_sizes()
        store.mend(commits)
        store.clean(commits)
        try:
            while not commits or (commits[-1].sweep < sweeps and not _settled(commits, tol)):
                began = time.perf_counter()
                store.check_space(self.plan.generation_bytes(), commits)
                commits.append(self.sweep(commits[-1]) if commits else self.start())
                store.clean(commits)
                seconds = time.perf_counter() - began if commits[-1].sweep else 0.0
                bound = commits[-1].scalar("elbo")
                display.end_sweep(commits[-1].sweep, bound, seconds, self.counts.nnz)
                _warn_of_fall(commits, self.settings)
                if callback is not None and commits[-1].sweep:
                    callback(commits[-1].sweep, bound, seconds)
            store.storage.settle()
        except BaseException:
            self._abandon()
            raise
        finally:
            display.close()
        return commits[-1]

    def _abandon(self) -> None:
        """Remove what a failed attempt wrote; on a cluster its tasks may still be writing: the clean-up waits there."""
        if self.attempt and self.executor.client is None:
            try:
                self.store.remove_generation(self.attempt)
            except (StoreError, OSError):
                pass  # the error under way is the one to tell

    # Graphs

    def _job(self, sweep: int) -> tuple[tasks.Job, Manifest]:
        folder, files = self.store.begin_generation(sweep, self.specs)
        self.attempt = folder
        job = tasks.Job(
            self.counts, self.settings, self.plan, self.room, self.store.storage, folder, self.specs, self.passes
        )
        return job, files

    def _steps(self, job: tasks.Job) -> Steps:
        """An empty graph of this attempt, the job in it."""
        self.graphs += 1
        steps = Steps(f"{job.folder.removeprefix('generation-')}-{self.graphs}")
        steps.share("job", job)
        return steps

    def _run(self, step: str, steps: Steps, keys: list[str]) -> list[Any]:
        self.display.step(step)
        return self.executor.run(steps.graph, keys, self.display.done)

    def _tree(self, steps: Steps, job: str, name: str, block: int, keys: list[str]) -> str:
        """Add nodes that add up `keys` in a fixed binary tree; the root."""
        level = 0
        while len(keys) > 1:
            pairs = [
                steps.add(f"add-{name}", f"{block}-{level}-{k}", tasks.add_up, job, keys[k], keys[k + 1])
                for k in range(0, len(keys) - 1, 2)
            ]
            keys = pairs + keys[len(keys) - len(keys) % 2 :]
            level += 1
        return keys[0]

    def _select(self, steps: Steps, side: str, own: str, its: str) -> list[str]:
        """Nodes for the selection statistics of every block of a side; a key a block."""
        job = f"job-{steps.tag}"
        cut = self.plan.cuts[side]
        roots = []
        for tile_block in range(cut.blocks):
            keys = [
                steps.add(
                    f"select-{side}", f"{tile_block}-{group}", tasks.select_tile, job, side, own, its, tile_block, group
                )
                for group in range(cut.groups)
            ]
            whole = self._tree(steps, job, "selection", tile_block, keys)
            if side == self.plan.long:  # a tile's rows are a block
                roots.append(whole)
                continue
            roots += [
                steps.add("take-selection", block, tasks.take_rows, job, side, whole, block)
                for block in self.plan.tile_blocks(side, tile_block)
            ]
        return roots

    def _update(
        self,
        job: tasks.Job,
        side: str,
        own: Sealed,
        its: Sealed,
        base: Background,
        xi_star: float,
        logits: list[np.ndarray] | None,
        log_z: float,
    ) -> tuple[list[tasks.Updated], Background, SideSums]:
        """The half-sweep of one side."""
        steps = self._steps(job)
        shared = f"job-{steps.tag}"
        old, others, ground = steps.share("own", own), steps.share("its", its), steps.share("background", base)
        star = 2 * lambda_of(xi_star)
        stats = [] if self.plan.whole(side) else self._gather(steps, side, old, others, star, logits, log_z)
        roots = []
        for block in range(self.plan.count(side)):
            rest = (None if logits is None else steps.share(f"logits-{block}", logits[block]), log_z, block)
            if self.plan.whole(side):
                root = steps.add(
                    f"update-{side}", block, tasks.update_block, shared, side, old, others, ground, star, *rest
                )
            else:
                root = steps.add(
                    f"update-{side}", block, tasks.solve_block, shared, side, old, stats[block], ground, star, *rest
                )
            roots.append(root)
        return self._sum_up(self._run(f"update {side}", steps, roots))

    def _gather(
        self, steps: Steps, side: str, own: str, its: str, star: float, logits: list[np.ndarray] | None, log_z: float
    ) -> list[str]:
        """Nodes for the statistics of every block of the short side; a key a block."""
        job = f"job-{steps.tag}"
        roots = []
        for tile_block in range(self.plan.cuts[side].blocks):
            blocks = self.plan.tile_blocks(side, tile_block)
            for bundle in (blocks[k : k + self.room.bundle] for k in range(0, len(blocks), self.room.bundle)):
                each = [None if logits is None else logits[block] for block in bundle]
                weights = steps.share(f"all-logits-{bundle[0]}", each)
                gathered = [
                    steps.add(
                        f"gather-{side}", f"{bundle[0]}-{share}", tasks.gather_statistics, job, side, own, its, star,
                        weights, log_z, bundle, share,
                    )
                    for share in range(len(self.plan.shares))
                ]  # fmt: skip
                for k, block in enumerate(bundle):
                    parts = [
                        steps.add("pick-statistics", f"{block}-{share}", tasks.pick, job, key, k)
                        for share, key in enumerate(gathered)
                    ]
                    roots.append(self._tree(steps, job, "statistics", block, parts))
        return roots

    def _sum_up(self, updated: list[tasks.Updated]) -> tuple[list[tasks.Updated], Background, SideSums]:
        packed = np.sum([part.background for part in updated], axis=0)
        return updated, Background(self.settings.factors, packed), SideSums.add([part.sums for part in updated])

    def _finish(
        self, job: tasks.Job, state: Sealed, items: Background, xi_star: float, sums: dict[str, SideSums]
    ) -> tuple[list[Any], float, float]:
        """The selection pass over a finished state: entries, the bound and the users' next normaliser."""
        steps = self._steps(job)
        whole, background = steps.share("state", state), steps.share("background", items)
        alone = self.plan.long == "users"
        stats = [None] * self.plan.count("users") if alone else self._select(steps, "users", whole, whole)
        keys = [
            steps.add(
                "finish-users", block, tasks.finish_block, f"job-{steps.tag}", whole, key, background, xi_star, block
            )
            for block, key in enumerate(stats)
        ]
        results = self._run("bound", steps, keys)
        shown = float(np.sum([result[1] for result in results]))
        message = float(np.sum([result[2] for result in results]))
        bound = shown + self.censored * message
        for side in SIDES:
            rows = self.plan.cuts[side].rows
            bound += side_bound(sums[side], rows, self.counts.total, self.censored, self.settings)
        return [result[0] for result in results], bound, log_sum_exp([result[3] for result in results])

    # Sweeps

    def start(self) -> Commit:
        """Commit the start: sweep 0."""
        began = time.perf_counter()
        job, files = self._job(0)
        sums, backgrounds = {}, {}
        self.display.start_sweep(0, sum(self.plan.count(side) for side in SIDES))
        warm = self.warm
        for side in SIDES:
            steps = self._steps(job)
            shared = f"job-{steps.tag}"
            start = None if warm is None else steps.share("start", self._start_of(warm, side))
            keys = []
            for block in range(self.plan.count(side)):
                if warm is None:
                    keys.append(steps.add(f"start-{side}", block, tasks.start_block, shared, side, block))
                else:
                    rows = warm.rows[side][slice(*self.plan.row_range(side, block))]
                    task = tasks.take_over_block, shared, side, start, rows, block
                    keys.append(steps.add(f"take-over-{side}", block, *task))
            updated, backgrounds[side], sums[side] = self._sum_up(self._run(f"start {side}", steps, keys))
            files |= {key: (size, check) for part in updated for key, size, check in part.entries}
        state = Sealed(self.store.storage, job.folder, files)
        xi_star = 1.0 if warm is None else warm.commit.scalar("xi_star")
        return self._commit(job, None, state, backgrounds, sums, xi_star, float("nan"), began)

    def _start_of(self, warm: Warm, side: str) -> tasks.Start:
        """What the tasks of a warm start need; the earlier rows, all taken over, have shares that sum to one."""
        new = self.counts.marginal(side)[warm.rows[side] < 0]
        shares = share(new, self.plan.cuts[side].rows, self.counts.total, self.settings.alpha)
        return tasks.Start(warm.commit, decode_background(warm.commit, side).average, 1.0 + float(shares.sum()))

    def sweep(self, before: Commit) -> Commit:
        """One sweep of Algorithm 1 after a committed one."""
        began = time.perf_counter()
        job, files = self._job(before.sweep + 1)
        self.display.start_sweep(before.sweep + 1, self._tasks())
        old, xi_star = before.sealed, before.scalar("xi_star")
        backgrounds = {"items": decode_background(before, "items")}
        sums = {}

        # q(pi), s, q(b_i) and q(u_i): the Dirichlet and s are row by row, so they ride in the same tasks.
        updated, backgrounds["users"], sums["users"] = self._update(
            job, "users", old, old, backgrounds["items"], xi_star, None, before.scalar("log_z_next")
        )
        files |= {key: (size, check) for part in updated for key, size, check in part.entries}
        users = Sealed(self.store.storage, job.folder, dict(files))

        # xi*, then t.
        steps = self._steps(job)
        own = steps.share("own", old)
        stats = self._select(steps, "items", own, steps.share("its", users))
        keys = [
            steps.add("observe-items", block, tasks.observed_sums, f"job-{steps.tag}", "items", own, key, block)
            for block, key in enumerate(stats)
        ]
        results = self._run("select items", steps, stats + keys)
        selection, observed = results[: len(stats)], np.array(results[len(stats) :])
        seen, square = (float(total) for total in observed.sum(0))
        xi_star = update_xi_star(xi_star, backgrounds["users"], backgrounds["items"], square, seen)
        steps = self._steps(job)
        own, background = steps.share("own", old), steps.share("background", backgrounds["users"])
        keys = [
            steps.add(
                "weigh-items", block, tasks.weigh_block, f"job-{steps.tag}", "items", own,
                steps.share(f"selection-{block}", stat), background, xi_star, block,
            )
            for block, stat in enumerate(selection)
        ]  # fmt: skip
        weighed = self._run("weigh items", steps, keys)
        log_z = log_sum_exp([part for _, part in weighed])

        # q(psi), q(b_j) and q(v_j).
        updated, backgrounds["items"], sums["items"] = self._update(
            job, "items", old, users, backgrounds["users"], xi_star, [logits for logits, _ in weighed], log_z
        )
        files |= {key: (size, check) for part in updated for key, size, check in part.entries}
        state = Sealed(self.store.storage, job.folder, files)
        return self._commit(job, before, state, backgrounds, sums, xi_star, log_z, began)

    def _tasks(self) -> int:
        """Tasks of a sweep, for the progress bar."""
        long, short = self.plan.long, other(self.plan.long)
        blocks = {side: self.plan.count(side) for side in SIDES}
        parts = blocks[short] * len(self.plan.shares)
        if self.executor.client is not None:  # only wanted results are seen there
            return 2 * blocks["users"] + 4 * blocks["items"]
        cut = self.plan.cuts[short]
        tiles = [len(self.plan.tile_blocks(short, tile_block)) for tile_block in range(cut.blocks)]
        gathers = len(self.plan.shares) * sum(-(-count // self.room.bundle) for count in tiles) + 2 * parts
        if self.plan.whole(short):
            gathers = blocks[short]
        # With their trees and what takes single blocks out.
        passes = 2 * blocks[long] + gathers + (2 * cut.groups - 1) * cut.blocks + blocks[short]
        if long == "users":
            passes -= blocks[long]  # their selection is part of the finish
        return passes + 2 * blocks["items"] + blocks["users"]

    def _commit(
        self,
        job: tasks.Job,
        before: Commit | None,
        state: Sealed,
        backgrounds: dict[str, Background],
        sums: dict[str, SideSums],
        xi_star: float,
        log_z_items: float,
        began: float,
    ) -> Commit:
        entries, bound, log_z_next = self._finish(job, state, backgrounds["items"], xi_star, sums)
        files = state.manifest | {key: (size, check) for key, size, check in entries}
        scalars = {"xi_star": xi_star, "elbo": bound, "log_z_next": log_z_next, "log_z_items": log_z_items}
        sweep = 0 if before is None else before.sweep + 1
        for name in ("elbo", "xi_star", "log_z_next"):
            if not np.isfinite(scalars[name]):
                raise NumericError(
                    f"{name} of sweep {sweep} is {scalars[name]}; the last committed sweep is intact; "
                    'dtype="float64" or larger taus may help'
                )
        scalars["log_z_users"] = float("nan") if before is None else before.scalar("log_z_next")
        record = {
            "sweep": sweep,
            "kept": self.kept(sweep),
            "generation": job.folder,
            "parent": None if before is None else before.record["digest"],
            "settings": self.settings.to_dict(),
            "counts": {"path": relative_path(self.counts.path, self.store.url), "digest": self.counts.digest},
            "rows": {side: self.plan.cuts[side].rows for side in SIDES},
            "blocks": self.plan.blocks,
            "scalars": {name: float(value).hex() for name, value in scalars.items()},
            "backgrounds": {side: base64.b64encode(backgrounds[side].packed.tobytes()).decode() for side in SIDES},
            "seconds": round(time.perf_counter() - began, 4),
            "files": files,
        }
        if before is None and self.warm is not None:
            start = self.warm.commit
            path = relative_path(start.storage.url, self.store.url)
            record["start"] = {"path": path, "sweep": start.sweep, "digest": start.record["digest"]}
        self.attempt = ""  # whatever happens to the answer, it may be a commit now
        return self.store.commit(record, self.specs)


def decode_background(commit: Commit, side: str) -> Background:
    """The background of a committed state."""
    packed = np.frombuffer(base64.b64decode(commit.record["backgrounds"][side]), "<f8")
    return Background(commit.settings.factors, packed)


def relative_path(path: str, start: str) -> str:
    """A counts store's address as seen from the model store, so that both can move together."""
    if not (is_local(path) and is_local(start)):
        return path
    return os.path.relpath(path, os.path.dirname(start))


def absolute_path(path: str, start: str) -> str:
    """The address behind a `relative_path`."""
    return path if not is_local(path) else os.path.normpath(os.path.join(os.path.dirname(start), path))
