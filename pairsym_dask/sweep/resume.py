"""What a fit may be asked for, and whether it may go on with what a store holds: checked before anything is written."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..errors import FitInterrupted, InputError, StoreError
from ..options import positive_number, whole_number
from ..settings import SIDES, Settings
from ..store.commit import Commit
from ..store.counts import Counts
from ..store.model_store import ModelStore
from ..store.tags import Tags
from .plan import Plan


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


def settled(commits: list[Commit], tol: float | None) -> bool:
    """Whether the bound's last relative change is within `tol`."""
    if tol is None or len(commits) < 3:  # the first change comes from the random start
        return False
    before, now = (commit.scalar("elbo") for commit in commits[-2:])
    return abs(now - before) <= tol * abs(now)


def warn_of_fall(commits: list[Commit], settings: Settings) -> None:
    """Say it when the bound falls by more than rounding; with constant messages it may."""
    if len(commits) < 2 or settings.selection == "constant":
        return
    before, now = (commit.scalar("elbo") for commit in commits[-2:])
    rounding = 1e-10 if settings.dtype == "float64" else 1e-6
    if now < before - rounding * abs(before):
        warnings.warn(
            f"the bound fell by {before - now:.6g} ({(before - now) / max(abs(before), abs(now)):.1e} of it) in sweep "
            f"{commits[-1].sweep}, from {before:.10g} to {now:.10g}; it should only rise",
            UserWarning,
            stacklevel=2,
        )


def first_commit(store: ModelStore) -> Commit | None:
    """What a store began with, None for a store without any sweep."""
    try:
        first = store.commits(last=0)
    except StoreError:
        return None  # nothing is there, or what is there is refused later, in words
    return first[0] if first else None


def solver_of(store: ModelStore) -> str | None:
    """The solver that a store's sweeps were made with, None for a store without any; the first stores name none."""
    first = first_commit(store)
    return None if first is None else str(first.record.get("solver", "cholesky"))


def fading_of(store: ModelStore, side: str) -> bool:
    """Whether the pull of a side's tags fades beside pairs in a store's sweeps; in stores that do not say it grows."""
    first = first_commit(store)
    return first is None or side not in first.tags or first.tags[side].get("fades", False)


def check_same(first: Commit, counts: Counts, settings: Settings, plan: Plan, store: ModelStore) -> None:
    """Refuse to go on with other settings or other data, in words."""
    then, now = first.settings.to_dict(), settings.to_dict()
    changed = [f"{name}={now[name]!r} (was {then[name]!r})" for name in now if then[name] != now[name]]
    if changed:
        raise StoreError(f"{store.url} holds a fit with other settings: {', '.join(changed)}; give another path")
    if first.record["counts"]["digest"] != counts.digest:
        raise StoreError(
            f"{store.url} holds a fit to other data than {counts.path} (it was {first.record['counts']['path']}); "
            "give another path"
        )
    if first.record["blocks"] != plan.blocks or first.record.get("shards") != plan.shards:
        raise StoreError(f"{store.url} was cut into other blocks than this pairsym_dask would; give another path")


def check_same_tags(first: Commit, tags: dict[str, Tags], store: ModelStore) -> None:
    """Refuse to go on with other tags, in words."""
    for side in SIDES:
        then, now = first.tags.get(side), tags.get(side)
        if (None if then is None else then["digest"]) == (None if now is None else now.digest):
            continue
        had = f"with {side[:-1]} tags of {then['path']}" if then is not None else f"without {side[:-1]} tags"
        given = "none are given" if now is None else f"those of {now.path} are given"
        raise StoreError(f"{store.url} holds a fit {had}, and {given}; give the same, or another path")


def check_warm(commits: list[Commit], start: Commit, store: ModelStore) -> None:
    """Refuse to go on with a fit that did not start from this commit."""
    began = commits[0].record.get("start") if commits else None
    if commits and (began is None or began["digest"] != start.record["digest"]):
        raise StoreError(
            f"{store.url} holds a fit that did not start from sweep {start.sweep} of {start.storage.url}; "
            "give another path"
        )


def interrupted(store: ModelStore) -> FitInterrupted:
    """Where an interrupted fit stands."""
    commits = store.commits() if store.is_model() else []
    if not commits:
        return FitInterrupted(f"interrupted before the first commit to {store.url}; run the same again")
    return FitInterrupted(
        f"interrupted: {store.url} stands at sweep {commits[-1].sweep}; run the same again to go on from there"
    )


def sampling_options(settings: Settings, tol: Any, burn: Any, thin: Any, start: Any) -> dict[str, Any]:
    """Options of draws, none for a variational fit; those of the other kind are refused."""
    if settings.inference == "gibbs":
        if tol is not None:
            raise InputError(f"tol stops where a bound settles, and draws have none: leave it out, not {tol!r}")
        return {"burn": burn, "thin": 5 if thin is None else thin}
    for name, value in (("burn", burn), ("thin", thin), ("start", start)):
        if value is not None:
            raise InputError(f'{name} is for draws: it needs inference="gibbs"')
    return {}
