"""The scheme of the sampler: the only place that knows the order of draws, and how a chain begins, goes on and ends.

c_ij ~ Poisson(M pi_i psi_j sigma(a_ij)) with M = (1 + r) D: given its totals this is the model itself, and the censored
counts n'_ij ~ Poisson(M pi_i psi_j (1 - sigma(a_ij))) are independent, so that they can be drawn by thinning. They and
the Polya-Gamma weights are drawn anew before each half-sweep, a valid Gibbs step, so that no drawn pair is ever stored.

Selection may have several components, pi_i psi_j being sum_n w_in psi_jn: every pair, observed or censored, belongs to
one of them, drawn with it. All w_in together are Dirichlet, and each component's psi_jn; rho_n, the sum of w_in, is how
much is selected by a component.

Where a side has tags their effects, `tags.py`, are drawn after its prior.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from ..errors import InputError, NumericError
from ..options import whole_number
from ..run.execute import Executor
from ..run.progress import Progress
from ..run.workers import Requirements
from ..settings import SIDES, Settings
from ..store.arrays import Sealed
from ..store.commit import Commit
from ..store.counts import Counts
from ..store.model_store import ModelStore
from ..store.records import WATCHED, selected_names
from ..store.tags import Tags
from ..sweep.fit import Callback, Fit, Warm, choose_shards, held
from ..sweep.resume import parse_keep
from ..sweep.room import Room
from ..sweep.tag_prior import TagPrior
from .diagnose import LEAST, SETTLED, effective_draws, split_r_hat
from .graphs import Half, Passes
from .halves import BIAS_PRIOR, PRIOR
from .hyper import Prior, draw_prior
from .plan import DrawPlan, make_room
from .tasks import DrawJob

GRAPHS = 2  # of a sweep, and one for each side with tags
LOOK = 10  # sweeps from one look at the traces to the next


@dataclass(frozen=True)
class Schedule:
    """Which sweeps are draws: every `thin`-th after `burn`."""

    burn: int
    thin: int

    def is_draw(self, sweep: int) -> bool:
        return sweep > self.burn and (sweep - self.burn) % self.thin == 0


def check_schedule(sweeps: int, burn: int | None, thin: int, before: list[Commit]) -> Schedule:
    """The schedule that is asked for; without `burn` that of a chain under way, else half of the sweeps."""
    sweeps, thin = whole_number("sweeps", sweeps, least=0), whole_number("thin", thin, least=1)
    if burn is None:
        begun = before[0].record.get("burn") if before else None
        burn = sweeps // 2 if begun is None else begun
    burn = whole_number("burn", burn, least=0)
    if burn >= max(sweeps, 1):
        raise InputError(f"burn must be below sweeps, so that draws are left: burn is {burn} and sweeps is {sweeps}")
    return Schedule(burn, thin)


def check_can_sample(counts: Counts) -> None:
    """Refuse counts that cannot be sampled."""
    if counts.nnz == 0:
        raise InputError(f"{counts.path} holds no pairs: there is nothing to fit")
    if np.dtype(counts.layout.count_dtype).kind != "u":
        raise InputError(
            f'{counts.path} holds counts that are not whole numbers, and inference="gibbs" draws whole pairs: round '
            'them before ingest, or fit with inference="variational"'
        )


def check_start(start: Commit, counts: Counts, settings: Settings) -> None:
    """Refuse to start from a fit of other data or another K."""
    where = f"sweep {start.sweep} of {start.storage.url}"
    if start.record["counts"]["digest"] != counts.digest:
        raise InputError(f"start is a fit of other data ({where}) than {counts.path}; give one of the same counts")
    if start.settings.factors != settings.factors:
        raise InputError(
            f"start has {start.settings.factors} factors ({where}) and this model {settings.factors}; "
            "give both the same factors"
        )


def sample(
    counts: Counts,
    settings: Settings,
    store: ModelStore,
    *,
    sweeps: int,
    burn: int | None = None,
    thin: int = 5,
    start: Commit | None = None,
    warm: Warm | None = None,
    tags: dict[str, Tags] | None = None,
    start_tags: dict[str, Tags] | None = None,
    memory: int | str | None = None,
    client: Any = None,
    threads: int | None = None,
    progress: bool = False,
    callback: Callback | None = None,
    keep: int | Iterable[int] | None = None,
    discard_damaged: bool = False,
) -> Commit:
    """Sample until `sweeps` sweeps are committed, going on from what the store holds; the last commit.

    A chain begins with a fit of the same symbols, `start`, or with one whose rows are named by `warm`. `tags` are the
    tag stores of the sides that have one, `start_tags` those of the start.
    """
    check_can_sample(counts)
    check_schedule(sweeps, burn, thin, [])
    if start is not None:
        check_start(start, counts, settings)
        warm = Warm(start, {}, start_tags or {})
    kept = parse_keep(keep)
    executor = Executor(client, threads)
    priors = {side: TagPrior.make(side, tags[side], counts) for side in SIDES if tags and side in tags}
    plan = DrawPlan.make(counts, settings, sum(prior.nbytes(settings) for prior in priors.values()))
    plan = replace(plan, shards=choose_shards(store, plan, settings, priors))
    room = make_room(plan, *executor.resources(memory))
    begun = None if warm is None else warm.commit
    with held(store, counts, executor, begun, discard_damaged, plan.shards is not None) as needed:
        schedule = check_schedule(sweeps, burn, thin, store.commits())
        display = Progress(progress, sweeps, measure="log p(i, j)")
        chain = Chain(counts, settings, store, plan, room, executor, display, kept, needed, warm, schedule, priors)
        last = chain.go_on(sweeps, None, callback)
    warn_of_unsettled(store.commits())
    return last


class Chain(Fit):
    """One chain under way: sweeps of draws, committed, resumed and cleaned up as those of a fit."""

    measure = "log_likelihood"
    plan: DrawPlan  # type: ignore[assignment]

    def __init__(
        self, counts: Counts, settings: Settings, store: ModelStore, plan: DrawPlan, room: Room, executor: Executor,
        display: Progress, kept: Callable[[int], bool], needed: Requirements | None, warm: Warm | None,
        schedule: Schedule, tags: dict[str, TagPrior],
    ) -> None:  # fmt: skip
        super().__init__(
            counts, settings, store, plan, room, executor, display, kept, needed, warm, tags,  # type: ignore[arg-type]
        )  # fmt: skip
        self.schedule = schedule

    def sweep(self, before: Commit) -> Commit:
        """One sweep of the chain after a committed one; every `run.` step is one dask graph."""
        run, old = self._open(before.sweep + 1), before.sealed
        prior = {side: Prior.decode(before.record["priors"][side], self.settings.factors) for side in SIDES}
        selected = {side: before.selected(side) for side in SIDES}  # what pi and psi are divided by

        # steps of pi against u_i and b_i; n', omega; u_i and b_i; pi; then what they say of their prior
        users = run.draw("users", old, old, self.scale(selected), prior["users"], self.middle("items", prior, old))
        selected["users"], prior["users"] = users.selection, self.hyper(run, "users", users)
        self.draw_tags(run, "users", before, prior)  # h_f, e_f, gamma_f
        new = run.written()
        # steps of psi against v_j and b_j; n' and omega anew; v_j and b_j; psi
        items = run.draw("items", old, new, self.scale(selected), prior["items"], self.middle("users", prior, new))
        selected["items"], prior["items"] = items.selection, self.hyper(run, "items", items)
        self.draw_tags(run, "items", before, prior)

        # log p(i, j) of an observed pair at (users new, items old), where the items' pairs were drawn
        shown = 1 - items.censored / max(items.proposals, 1.0)
        if self.settings.components > 1:  # every pair's log odds to be selected are in log_shown
            likelihood = items.log_shown / self.counts.total - float(np.log(self.plan.proposals))
        else:
            selected_as = before.scalar("log_psi") - items.shifted  # sum c_j log psi_j, after the items' steps
            likelihood = (items.log_shown + users.log_selection + selected_as) / self.counts.total
        return self._seal(run, before, prior, selected, likelihood - float(np.log(shown)), shown, items.log_selection)

    def scale(self, selected: dict[str, np.ndarray]) -> np.ndarray:
        """What the long side's selection is multiplied with to give expected proposals, by component."""
        users, items = selected["users"], selected["items"]
        if self.plan.long == "users":
            return np.full(users.size, self.plan.proposals / users.sum())
        return self.plan.proposals * (users / users.sum()) / items

    def start(self) -> Commit:
        """Commit the start: sweep 0."""
        run = self._open(0)
        halves = {side: self._first(run, side) for side in SIDES}
        selected = {side: half.selection for side, half in halves.items()}
        prior = {side: self._first_prior(side) for side in SIDES}
        for side in self.tags:
            self._first_tags(run, side)
        return self._seal(run, None, prior, selected, float("nan"), float("nan"), halves["items"].log_selection)

    def _first(self, run: Passes, side: str) -> Half:
        if self.warm is None:
            return run.begin(side)
        return run.take_over(side, self.warm.commit, self.warm.rows.get(side), self._first_prior(side))

    def _first_prior(self, side: str) -> Prior:
        """The priors of the chain that this one begins with, or the taus."""
        if self.warm is None or not self.settings.hyperpriors or "priors" not in self.warm.commit.record:
            return Prior.fixed(self.settings, side)
        return Prior.decode(self.warm.commit.record["priors"][side], self.settings.factors)

    def _first_tags(self, run: Passes, side: str) -> None:
        """Tags begin at nothing, or in a warm start where the earlier fit has left them."""
        if self.warm is None or side not in self.warm.tags:
            run.begin_tags(side, None, None)
            return
        earlier, ids = self.warm.tags[side], self.tags[side].tags.tag_ids
        run.begin_tags(side, self.warm.commit, np.append(earlier.links.find("items", ids), earlier.shape[1]))

    def draw_tags(self, run: Passes, side: str, before: Commit, prior: dict[str, Prior]) -> None:
        """Draw the tags of a side, if it has some, given its rows and their new prior."""
        if side in self.tags:
            run.draw_tags(side, before.sealed, prior[side])

    def middle(self, side: str, prior: dict[str, Prior], state: Sealed) -> Prior:
        """A side's prior about the average symbol: where it has tags, the level is in its mean."""
        if side not in self.tags:
            return prior[side]
        return replace(prior[side], mean=prior[side].mean + self.job.tag_table(side, state)[-1, :-1])

    def hyper(self, run: Passes, side: str, half: Half) -> Prior:
        """The prior of a side, drawn given its new rows, or as it was set."""
        if not self.settings.hyperpriors:
            return Prior.fixed(self.settings, side)
        keys = run.job.keys
        return draw_prior((keys.of(PRIOR, side), keys.of(BIAS_PRIOR, side)), half.moments, self.settings)

    def look_at(self, commits: list[Commit]) -> None:
        """Let progress show how settled the chain is, every so many sweeps after burn-in."""
        found = traces(commits) if commits[-1].sweep % LOOK == 0 else np.empty((0, 0))
        if found.size and found.shape[1] >= LEAST:
            self.display.note = f"R-hat {worst_r_hat(found):.2f}, {effective_draws(found[0]):.0f} effective sweeps"

    def _open(self, sweep: int) -> Passes:
        """A new attempt at a sweep."""
        files = self.open_attempt(sweep, GRAPHS + len(self.tags))
        job = replace(self.job, folder=self.attempt, sweep=sweep)
        return Passes(job, files, self.executor, self.display)

    def make_job(self) -> DrawJob:
        """What the tasks of all sweeps share; the folder and number of each are still to be named."""
        return DrawJob(
            self.counts, self.settings, self.plan, self.room, self.store.storage, "", self.specs, 0, self.needed,
            self.tags, self.shards,
        )  # fmt: skip

    def _seal(
        self, run: Passes, before: Commit | None, prior: dict[str, Prior], selected: dict[str, np.ndarray],
        likelihood: float, shown: float, log_psi: float,
    ) -> Commit:  # fmt: skip
        """Make a finished attempt real."""
        sweep = 0 if before is None else before.sweep + 1
        scalars = {"log_likelihood": likelihood, "shown": shown, "log_psi": log_psi}
        if before is not None and not np.isfinite(likelihood):
            raise NumericError(
                f"the log-likelihood of sweep {sweep} is {likelihood}; the last committed sweep is intact; "
                'dtype="float64" or hyperpriors=True may help'
            )
        for side in SIDES:
            scalars |= dict(zip(selected_names(side, self.settings.components), selected[side].tolist(), strict=True))
        scalars |= {f"energy_{k}": energy for k, energy in enumerate(self._watch(run))}
        draw = self.schedule.is_draw(sweep)
        own = {
            "kept": draw or self.kept(sweep),
            "draw": draw,
            "burn": self.schedule.burn,
            "priors": {side: prior[side].encode() for side in SIDES},
        }
        return self.close_attempt(run.files, before, scalars, own)

    def _watch(self, run: Passes) -> list[float]:
        """Energies of a few pairs of the sides' first blocks, from the most active symbols to the least."""
        sides = []
        for side in SIDES:
            drawn = run.job.read(run.written(), side, 0)
            order = np.argsort(-run.job.marginal(side, 0), kind="stable")
            chosen = order[np.linspace(0, order.size - 1, WATCHED).astype(np.int64)]
            sides.append((drawn.traits[chosen].astype(float), drawn.bias[chosen].astype(float)))
        (u, b), (v, e) = sides
        return [float(energy) for energy in (u * v).sum(1) + b + e]


def traces(commits: Sequence[Commit]) -> np.ndarray:
    """Traces (quantities, sweeps) after burn-in: the log-likelihood and the watched energies."""
    names = ["log_likelihood", *(f"energy_{k}" for k in range(WATCHED))]
    late = [commit for commit in commits if commit.sweep > commits[-1].record["burn"]]
    return np.array([[commit.scalar(name) for commit in late] for name in names])


def diagnose(commits: Sequence[Commit]) -> pd.DataFrame:
    """Traces after burn-in, a row each: quantity, mean, sd, r_hat, effective draws, and those a second."""
    found = traces(commits)
    late = [commit for commit in commits if commit.sweep > commits[-1].record["burn"]]
    seconds = sum(commit.record["seconds"] for commit in late)
    names = ["log_likelihood", *(f"energy_{k}" for k in range(WATCHED))]
    effective = [effective_draws(trace) for trace in found]
    return pd.DataFrame(
        {
            "quantity": names,
            "mean": found.mean(1) if late else np.nan,
            "sd": found.std(1) if late else np.nan,
            "r_hat": [split_r_hat(trace) for trace in found],
            "effective": effective,
            "a_second": [value / seconds if seconds else np.nan for value in effective],
        }
    )


def worst_r_hat(found: np.ndarray) -> float:
    """The largest split R-hat of some traces; one that never moves, as of a side with few symbols, says nothing."""
    return max((split_r_hat(trace) for trace in found if np.ptp(trace) > 0), default=1.0)


def warn_of_unsettled(commits: Sequence[Commit]) -> None:
    """Say it when a chain's halves after burn-in disagree."""
    found = traces(commits)
    if found.shape[1] < LEAST:
        return
    worst = worst_r_hat(found)
    if worst > SETTLED:
        warnings.warn(
            f"the chain has not settled: split R-hat is {worst:.2f} over {found.shape[1]} sweeps after burn-in (1 is "
            f"settled), worth {effective_draws(found[0]):.0f} independent sweeps of the log-likelihood; fit with more "
            "sweeps, it goes on where it stopped",
            UserWarning,
            stacklevel=2,
        )
