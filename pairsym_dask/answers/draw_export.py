"""Draws as labelled arrays for other tools: xarray, and through it arviz; chains of several seeds side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import InputError
from ..settings import SIDES
from ..store.commit import Commit
from ..store.counts import Counts
from .draws import draws_of


def check_chains(chains: Sequence[Sequence[Commit]]) -> None:
    """Refuse chains that are not of the same counts and settings with seeds of their own, or not equally long."""
    first = chains[0][-1]
    seeds = {first.settings.random_state}
    for commits in chains[1:]:
        last = commits[-1]
        where = f"the chain in {last.storage.url}"
        if last.record["counts"]["digest"] != first.record["counts"]["digest"]:
            raise InputError(
                f"{where} is of other pairs than that in {first.storage.url}; join chains of the same counts"
            )
        for name, value in last.settings.to_dict().items():
            if name != "random_state" and value != getattr(first.settings, name):
                raise InputError(
                    f"{where} has {name}={value!r} and that in {first.storage.url} {getattr(first.settings, name)!r}; "
                    "join chains of the same settings and other seeds"
                )
        if last.settings.random_state in seeds:
            raise InputError(
                f"{where} has random_state={last.settings.random_state}, as another one: it is the same chain; "
                "fit it with another seed"
            )
        seeds.add(last.settings.random_state)
        sweeps = [[commit.sweep for commit in draws_of(chain)] for chain in (chains[0], commits)]
        if sweeps[0] != sweeps[1]:
            raise InputError(
                f"{where} has {len(sweeps[1])} draws up to sweep {sweeps[1][-1]} and that in {first.storage.url} "
                f"{len(sweeps[0])} up to sweep {sweeps[0][-1]}; fit both with the same sweeps, burn and thin"
            )


def chains_dataset(chains: Sequence[Sequence[Commit]], counts: Counts) -> Any:
    """Draws of chains of several seeds in one dataset, along chain."""
    import xarray as xr

    check_chains(chains)
    found = [draws_dataset(draws_of(commits), counts) for commits in chains]
    return found[0] if len(found) == 1 else xr.concat(found, "chain", combine_attrs="drop_conflicts")


def arviz_data(chains: Sequence[Sequence[Commit]], counts: Counts) -> Any:
    """The same as arviz takes it: groups posterior and sample_stats."""
    import xarray as xr

    try:
        import arviz
    except ImportError:
        raise InputError(
            "to_arviz needs arviz, which is not installed: pip install arviz; to_xarray has the same draws"
        ) from None
    data = chains_dataset(chains, counts)
    groups = {"posterior": data.drop_vars("log_likelihood"), "sample_stats": data[["log_likelihood"]]}
    kind = getattr(arviz, "InferenceData", None)  # until arviz 1
    return xr.DataTree.from_dict(groups) if kind is None else kind(**groups)


def draws_dataset(commits: list[Commit], counts: Counts) -> Any:
    """Every draw as lazy xarray variables over chain and draw, labels as coordinates; pi and psi sum to one.

    With several components all of a draw's user_selection, w_in, sum to one, and the item_selection of each component.
    """
    import dask
    import dask.array as da
    import xarray as xr

    read = dask.delayed(_read_block, pure=True)
    variables: dict[str, Any] = {}
    for path, spec in commits[0].arrays.items():
        side, array = path.split("/")
        draws = []
        for commit in commits:
            total = commit.normaliser(side) if array == "selection" else None
            blocks = []
            for b in range(spec.grid[0]):
                index = (b,) + (0,) * (len(spec.shape) - 1)
                name = f"read-{path.replace('/', '-')}-{commit.record['digest'][:8]}-{b}"
                block = read(commit, path, index, total, dask_key_name=name)
                blocks.append(da.from_delayed(block, spec.extent(index), spec.dtype))
            draws.append(da.concatenate(blocks))
        variables[f"{side[:-1]}_{array}"] = (("chain", "draw", *spec.dimension_names), da.stack(draws)[None])
    likelihood = np.array([[commit.scalar("log_likelihood") for commit in commits]])
    variables["log_likelihood"] = (("chain", "draw"), likelihood)
    settings = commits[-1].settings
    return xr.Dataset(
        variables,
        coords={
            "chain": [settings.random_state],
            "draw": [commit.sweep for commit in commits],
            **{side[:-1]: counts.labels(side) for side in SIDES},
        },
        attrs={  # netCDF knows no truth values
            name: int(value) if isinstance(value, bool) else value for name, value in settings.to_dict().items()
        },
    )


def _read_block(commit: Commit, path: str, index: tuple[int, ...], total: np.ndarray | None) -> np.ndarray:
    block = commit.sealed.read_block(commit.arrays[path], *index)
    return block if total is None else np.asarray(block / total)
