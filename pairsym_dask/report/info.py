"""What a store holds, in lines for people."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dask.utils import format_bytes

from ..errors import StoreError
from ..run.progress import duration
from ..store.commit import Commit
from ..store.counts import RECORD, Counts, open_counts
from ..store.model_store import ModelStore
from ..store.storage import open_storage
from ..store.versions import Versions, find_version
from ..sweep.plan import CHOLESKY, Plan, solver_seconds


def describe(path: str, storage_options: dict[str, Any] | None = None) -> list[str]:
    """Lines about a counts store, a model store, or the newest version of a folder."""
    storage = open_storage(path, storage_options)
    if storage.exists(RECORD):
        return describe_counts(open_counts(storage))
    store = ModelStore(storage)
    if store.is_model():
        return describe_model(store)
    version = find_version(storage)
    if version is not None:
        dates = Versions(storage).names()
        there = f"{len(dates)} version{'s' * (len(dates) > 1)}, " if dates else ""
        return [
            f"{storage.url}: {there}{len(version.fed)} files and frames fed",
            *describe(version.model, storage_options),
            *describe(version.counts, storage_options),
        ]
    if storage.is_empty():
        raise StoreError(f"there is no store at {storage.url}: nothing is there")
    raise StoreError(f"{path} is neither a counts store nor a model store")


def describe_counts(counts: Counts) -> list[str]:
    if counts.holds == "tags":
        return describe_tags(counts)
    users, items = counts.shape
    size = sum(size for size, _ in counts.sealed.manifest.values())
    lines = [
        f"counts store {counts.path}",
        f"  {users:,} users x {items:,} items, {counts.nnz:,} distinct pairs, total count {counts.total:,.10g}",
        f"  labels: users {_kind(counts, 'users')}, items {_kind(counts, 'items')}",
        f"  {format_bytes(size)} in {len(counts.sealed.manifest):,} files, digest {counts.digest}",
        f"  source: {counts.record['source']}",
    ]
    for side, cut in sorted(counts.cuts.items(), reverse=True):
        lines.append(
            f"  by {side[:-1]}: {cut.blocks} blocks of {cut.block:,} rows x {cut.groups} groups of {cut.span:,} columns"
        )
    return lines


def describe_tags(links: Counts) -> list[str]:
    symbols, tags = links.shape
    size = sum(size for size, _ in links.sealed.manifest.values())
    return [
        f"tag store {links.path}",
        f"  {symbols:,} symbols x {tags:,} tags, {links.nnz:,} links, {links.nnz / symbols:.3g} a symbol",
        f"  labels: symbols {_kind(links, 'users')}, tags {_kind(links, 'items')}",
        f"  {format_bytes(size)} in {len(links.sealed.manifest):,} files, digest {links.digest}",
        f"  source: {links.record['source']}",
    ]


def _kind(counts: Counts, side: str) -> str:
    return "whole numbers" if counts.record["labels"][side] == "int64" else "strings"


def describe_model(store: ModelStore) -> list[str]:
    commits = store.commits()
    lines = [f"model store {store.url}"]
    if (holder := store.holder()) is not None:
        lines.append(f"  in use by {holder}")
    if not commits:
        return [*lines, "  no committed sweep yet"]
    last = commits[-1]
    settings = ", ".join(f"{name}={value}" for name, value in last.record["settings"].items())
    size = sum(size for size, _ in last.sealed.manifest.values())
    seconds = [float(commit.record["seconds"]) for commit in commits[1:]]
    folders = set(store.storage.folders())
    kept = [str(commit.sweep) for commit in commits if commit.folder in folders]
    lines += [
        f"  settings: {settings}",
        f"  {last.record['rows']['users']:,} users x {last.record['rows']['items']:,} items, "
        f"counts at {last.record['counts']['path']} (digest {last.record['counts']['digest']})",
        f"  sweep {last.sweep}, {_figures(commits)}; kept: {', '.join(kept)}",
        f"  {format_bytes(size)} a sweep"
        + ("" if last.shards is None else f" in {last.shards.count:,} shards")
        + (f", {duration(sum(seconds) / len(seconds))} a sweep" if seconds else ""),
    ]
    for side, tags in last.tags.items():
        lines.append(f"  {tags['tags']:,} {side[:-1]} tags at {tags['path']} (digest {tags['digest']})")
    if (start := commits[0].record.get("start")) is not None:
        lines.append(f"  an update: started from sweep {start['sweep']} of {start['path']} (commit {start['digest']})")
    try:
        counts = open_counts(last.counts_address)
        last.check_counts(counts.digest, counts.shape, counts.path)
        if last.settings.inference == "variational":
            plan = Plan.make(counts, last.settings, str(last.record.get("solver", "cholesky")))
            lines += describe_plan(replace(plan, shards=last.record.get("shards")))
    except StoreError as error:
        lines.append(f"  the counts store cannot be opened: {error}")
    return lines


def _figures(commits: list[Commit]) -> str:
    """How far a fit or a chain has come."""
    last = commits[-1]
    if last.settings.inference == "gibbs":
        draws = sum(commit.record["draw"] for commit in commits)
        return f"log p(i, j) {last.scalar('log_likelihood'):.6g}, {draws} draws"
    return f"bound {last.scalar('elbo'):.10g}, xi* {last.scalar('xi_star'):.6g}"


def describe_plan(plan: Plan) -> list[str]:
    """What the planner chose, and why."""
    long, short = plan.long, plan.short
    many = {side: len(places) for side, places in plan.places.items()}
    lines = [
        f"  {long} are the longer side: updated whole, {many[long]} blocks of {plan.blocks[long]:,} rows, against one "
        f"table of all {short}",
        f"  {short} are the shorter side: {many[short]} blocks of {plan.blocks[short]:,} rows (partial sums of a "
        f"block stay within 16 MiB), gathered from {plan.cuts[short].groups} groups of {long} in "
        f"{len(plan.shares)} shares",
    ]
    parts = {
        "shared": plan.shared_bytes(),
        "waiting sums": plan.waiting_bytes(),
        "each task": plan.task_bytes(),
        "a generation on disk": plan.generation_bytes(),
    }
    solved, stepped = (
        solver_seconds(costs, plan.factors, sum(cut.rows for cut in plan.cuts.values()), plan.pairs)
        for costs in (CHOLESKY, plan.stepping)
    )
    way = f"{plan.steps} steps of conjugate gradients" if plan.steps else "solving its K x K system (Cholesky)"
    lines.append(
        f"  a row is updated by {way}; expected core-seconds a sweep: {solved:.2g} solving, {stepped:.2g} stepping"
    )
    lines.append("  memory: " + ", ".join(f"{name} {format_bytes(value)}" for name, value in parts.items()))
    return lines
