"""`simulate`: the paper's generative process at any size, straight into a counts store, block by block.

Every number depends on the seed and the symbol alone (counter-based generators), so the store depends neither on
blocks nor on workers.
"""

from __future__ import annotations

import itertools
import json
import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InputError
from ..kernels.keys import LOW, SHIFT, add_repeats
from ..kernels.random import alias_table, draw_items, fill_normals, fold_draws, give_draws
from ..options import positive_number, seed, whole_number
from ..store.arrays import ArraySpec, write_block, write_metadata
from ..store.counts import Counts
from ..store.counts_writer import begin
from ..store.cuts import long_side
from ..store.scratch import Scratch, Stored
from .assemble import Numbers, write_store
from .runs import Piece, Run, Side, group_pieces, make_ranges, write_run
from .writing import Stages

PRESETS = {  # users, items, pairs: the shapes of the paper's data
    "xbox-movies": (6_200_000, 12_000, 56_000_000),
    "netflix45": (480_000, 18_000, 57_000_000),
    "phone-apps": (10_000_000, 100_000, 250_000_000),
}
ACTIVITY_SD, POPULARITY_SD = 1.0, 1.5  # of log pi and log psi: long tails, and few pairs drawn twice
TASTE, USER_BIAS, ITEM_BIAS = 1.2, 0.5, 0.7  # standard deviations of u_i.v_j, b_i and b_j
TRUTH_ROWS = 65_536  # a chunk
LOOK = 512  # users looked at at a time, in search of draws to give away
# Streams of the generator, apart from those of a fit's start: the same seed may serve both.
USER_TRAITS, ITEM_TRAITS, USER_BIASES, ITEM_BIASES, PI, PSI, SHARES, DRAWS, GIVEN = range(16, 25)


def simulate(
    path: str | os.PathLike[str],
    preset: str | None = None,
    scale: float = 1.0,
    *,
    users: int | None = None,
    items: int | None = None,
    pairs: int | None = None,
    factors: int = 20,
    random_state: int = 0,
    truth: bool = False,
    client: Any = None,
    threads: int | None = None,
    memory: int | str | None = None,
    progress: bool = False,
    storage_options: dict[str, Any] | None = None,
) -> Counts:
    """Draw pairs from the model's own generative process into a new counts store; labels are 0, 1, ..

    pi and psi are log-normal; traits and biases normal. User i is shown one pair and a multinomial share by pi of the
    rest,
    so that all D pairs are there and every user occurs; items are drawn from psi and shown with probability
    sigma(u_i.v_j + b_i + b_j). An item that was never drawn then takes the place of one draw, somewhere, of an item
    drawn at
    least twice, so that every item occurs.

    Parameters
    ----------
    path : path
        Where the store goes.
    preset : {"xbox-movies", "netflix45", "phone-apps"}, optional
        Shape of a known set.
    scale : float
        Multiplies a preset's users and pairs.
    users, items, pairs : int, optional
        The shape, where it is no preset's.
    factors : int
        Traits of a symbol.
    random_state : int
        Seed.
    truth : bool
        Keep the parameters in the store, for `read_truth`.
    client : distributed.Client, optional
        Where tasks run; the current client, or else threads of this process.
    threads : int, optional
        Tasks under way at a time; all cores by default.
    memory : int or str, optional
        Budget of a process, such as "2GiB"; half of what is free by default.
    progress : bool
        Show the steps on a terminal.
    storage_options : dict, optional
        Options of fsspec for remote stores.

    Returns
    -------
    Counts
        The store, open.

    Examples
    --------
    >>> ps.simulate("drawn.zarr", users=50, items=10, pairs=200, factors=2).total
    200.0
    """
    size = _size(preset, scale, users, items, pairs)
    model = Model(*size, whole_number("factors", factors, least=1), seed(random_state))
    stages = Stages(client, threads, memory, progress)
    storage = begin(path, storage_options)
    scratch = stages.scratch(storage)
    pi, psi = model.pi(), model.psi()
    draws = model.draws(pi)
    entries = _write_truth(stages, scratch, model, pi, psi) if truth else []
    del pi

    scratch.make("draws")
    scratch.make("runs")
    starts = make_ranges(draws, stages.rows)
    (stored_draws,) = scratch.write("draws/number", draws)
    traits, biases = model.traits(ITEM_TRAITS, 0, model.items), model.biases(ITEM_BIASES, 0, model.items)
    items_side = scratch.write("draws/items", traits.ravel(), biases, *alias_table(psi))
    del draws, psi, traits, biases
    urn = Urn(scratch, model, stored_draws, items_side)
    ranges = [(int(first), int(stop)) for first, stop in itertools.pairwise(starts)]
    drawn: list[DrawnPairs] = stages.run("draw-pairs", draw_pairs, [(urn, *rows) for rows in ranges])
    given = give_to_missing(urn, [block.item_counts for block in drawn])
    again = {}
    for k, (first, stop) in enumerate(ranges):
        mine = given[(given[:, 0] >= first) & (given[:, 0] < stop)]
        if mine.size:
            again[k] = (urn, first, stop, drawn[k], mine)
    for k, block in zip(again, stages.run("give-pairs", give_pairs, again.values()), strict=True):
        drawn[k] = block

    if long_side(model.users, model.items) == "users":
        runs = [block.run for block in drawn]
    else:
        counts = np.sum([scratch.read(block.item_counts) for block in drawn], axis=0)
        pieces, starts = [block.piece for block in drawn if block.piece], make_ranges(counts, stages.rows)
        runs = group_pieces(stages, scratch, "items", pieces, starts, True)
    scratch.remove("draws")
    name = (
        f"simulate(users={size[0]}, items={size[1]}, pairs={size[2]}, factors={factors}, random_state={random_state})"
    )
    labels = {"users": Numbers(model.users), "items": Numbers(model.items)}
    return write_store(stages, scratch, (model.users, model.items), runs, labels, name, entries)


def _size(preset: Any, scale: Any, users: Any, items: Any, pairs: Any) -> tuple[int, int, int]:
    if preset is not None:
        if preset not in PRESETS:
            raise InputError(f"no preset {preset!r}; there are: {', '.join(PRESETS)}")
        if (users, items, pairs) != (None, None, None):
            raise InputError("give a preset, or users, items and pairs, not both")
        users, items, pairs = PRESETS[preset]
    elif None in (users, items, pairs):
        raise InputError(f"give users, items and pairs, or a preset: {', '.join(PRESETS)}")
    given = {"users": users, "items": items, "pairs": pairs}
    users, items, pairs = (whole_number(name, value, least=1) for name, value in given.items())
    scale = positive_number("scale", scale)
    users, pairs = max(1, round(users * scale)), round(pairs * scale)
    for name, least in (("users", users), ("items", items)):
        if pairs < least:
            raise InputError(f"pairs must be at least as many as {name}, so that each occurs: {pairs} is below {least}")
    return users, items, pairs


@dataclass(frozen=True)
class Model:
    """The parameters that pairs are drawn from, block by block on demand."""

    users: int
    items: int
    pairs: int
    factors: int
    seed: int

    def normals(self, stream: int, first: int, stop: int, deviation: float, columns: int = 1) -> np.ndarray:
        """Normals (rows, columns) that depend on seed, stream and row alone."""
        out = np.empty((stop - first, columns), np.float32)
        with np.errstate(over="ignore"):  # the generator counts modulo 2**64
            fill_normals(np.uint64(self.seed), stream, first, deviation, out)
        return out

    def traits(self, stream: int, first: int, stop: int) -> np.ndarray:
        """u_i or v_j, each of variance TASTE / sqrt(K), so that their products have variance TASTE^2."""
        return self.normals(stream, first, stop, float(np.sqrt(TASTE / np.sqrt(self.factors))), self.factors)

    def biases(self, stream: int, first: int, stop: int) -> np.ndarray:
        return self.normals(stream, first, stop, USER_BIAS if stream == USER_BIASES else ITEM_BIAS)[:, 0]

    def _long_tailed(self, stream: int, size: int, deviation: float) -> np.ndarray:
        weights = np.empty(size)
        for first in range(0, size, TRUTH_ROWS):
            stop = min(first + TRUTH_ROWS, size)
            weights[first:stop] = np.exp(self.normals(stream, first, stop, deviation)[:, 0], dtype=np.float64)
        weights /= weights.sum()
        return weights

    def pi(self) -> np.ndarray:
        return self._long_tailed(PI, self.users, ACTIVITY_SD)

    def psi(self) -> np.ndarray:
        return self._long_tailed(PSI, self.items, POPULARITY_SD)

    def draws(self, pi: np.ndarray) -> np.ndarray:
        """Pairs of each user: one, and a share of the rest by pi."""
        generator = np.random.Generator(np.random.Philox(key=np.array([self.seed, SHARES], np.uint64)))
        return np.asarray(1 + generator.multinomial(self.pairs - self.users, pi))


@dataclass(frozen=True)
class Urn:
    """What tasks draw pairs from."""

    scratch: Scratch
    model: Model
    draws: Stored  # of every user
    items_side: tuple[Stored, ...]  # traits, biases and the tables that draw from psi

    def items(self) -> tuple[np.ndarray, ...]:
        traits, *rest = (self.scratch.read(stored) for stored in self.items_side)
        return traits.reshape(-1, self.model.factors), *rest

    def draw(self, first: int, stop: int, items: tuple[np.ndarray, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Items drawn for users `first` to `stop`, as they come, and where each user's begin."""
        model = self.model
        indptr = np.zeros(stop - first + 1, np.int64)
        np.cumsum(self.scratch.read(self.draws[first:stop]), out=indptr[1:])
        drawn = np.empty(indptr[-1], np.uint32)
        seed = np.array([model.seed, DRAWS, first], np.uint64)
        traits, biases = model.traits(USER_TRAITS, first, stop), model.biases(USER_BIASES, first, stop)
        item_traits, item_biases, kept, alias = items
        with np.errstate(over="ignore"):
            draw_items(seed, indptr, traits, biases, item_traits, item_biases, kept, alias, drawn)
        return drawn, indptr


@dataclass(frozen=True)
class DrawnPairs:
    """Pairs of a block of users: as a run, for where users are the long side, and as a piece."""

    run: Run
    piece: Piece | None
    item_counts: Stored


def draw_pairs(urn: Urn, first: int, stop: int) -> DrawnPairs:
    """Task: draw the pairs of a block of users."""
    drawn, indptr = urn.draw(first, stop, urn.items())
    item_counts = np.bincount(drawn, minlength=urn.model.items).astype(np.uint32)
    return _put_drawn(urn, f"{first}", first, stop, *fold_draws(drawn, indptr), item_counts)


def give_pairs(urn: Urn, first: int, stop: int, drawn: DrawnPairs, given: np.ndarray) -> DrawnPairs:
    """Task: the same pairs after some draws were given to other items."""
    scratch, run = urn.scratch, drawn.run
    keys = scratch.read(run.keys)
    counts = np.ones(keys.size, np.int64) if run.counts is None else scratch.read(run.counts).astype(np.int64)
    rows = (given[:, 0] - first).astype(np.uint64) << SHIFT
    lost, got = given[:, 3], given[:, 2]
    change = np.repeat(np.array([-1, 1]), given.shape[0])
    keys, counts = add_repeats(
        np.concatenate([keys, rows | lost.astype(np.uint64), rows | got.astype(np.uint64)]),
        np.concatenate([counts, change]),
    )
    item_counts = scratch.read(drawn.item_counts).astype(np.int64)
    np.add.at(item_counts, np.concatenate([lost, got]), change)
    kept = counts > 0
    return _put_drawn(urn, f"{first}-given", first, stop, keys[kept], counts[kept], item_counts.astype(np.uint32))


def _put_drawn(
    urn: Urn, key: str, first: int, stop: int, keys: np.ndarray, counts: np.ndarray, item_counts: np.ndarray
) -> DrawnPairs:
    scratch, model = urn.scratch, urn.model
    run = write_run(scratch, f"runs/{key}", first, stop - first, keys, counts)
    arrays = [item_counts]
    if long_side(model.users, model.items) == "items":
        arrays += [(keys >> SHIFT).astype(np.uint32) + np.uint32(first), (keys & LOW).astype(np.uint32), counts]
    stored = scratch.write(f"draws/{key}", *arrays)
    piece = Piece({"users": Side(stored[1]), "items": Side(stored[2])}, stored[3]) if len(stored) > 1 else None
    return DrawnPairs(run, piece, stored[0])


def give_to_missing(urn: Urn, item_counts: list[Stored]) -> np.ndarray:
    """Draws (user, number of the draw, item that gets it, item that had it) for the items that were never drawn.

    Every such item starts at a random user and takes the first draw from there on whose item keeps another one. Items
    go in the order of their users and none overtakes another, so that one look over the draws is enough, and a second
    one from user 0 for those that reach the end; the answer does not depend on how many users are looked at at a time.
    """
    scratch, model = urn.scratch, urn.model
    counts = np.zeros(model.items, np.int64)
    for stored in item_counts:
        counts += scratch.read(stored)
    missing = np.flatnonzero(counts == 0)
    generator = np.random.Generator(np.random.Philox(key=np.array([model.seed, GIVEN], np.uint64)))
    target = generator.integers(0, model.users, model.items)[missing]
    order = np.argsort(target, kind="stable")
    missing, target = missing[order], target[order]
    given = np.empty((missing.size, 4), np.int64)
    done, items = 0, urn.items() if missing.size else ()
    while done < missing.size:
        user = 0
        while done < missing.size and user < model.users:
            user = max(user, int(target[done]))
            stop = min(user + LOOK, model.users)
            drawn, indptr = urn.draw(user, stop, items)
            before = given[:done][(given[:done, 0] >= user) & (given[:done, 0] < stop)]
            drawn[indptr[before[:, 0] - user] + before[:, 1]] = before[:, 2]
            done = give_draws(user, drawn, indptr, missing, target, counts, given, done)
            user = stop
        target[:] = 0
    return given


# Truth --------------------------------------------------------------------------------------------------------------


def _truth_specs(model: Model) -> dict[str, ArraySpec]:
    users, items = model.users, model.items

    def spec(name: str, rows: int, dimension: str, dtype: str, columns: tuple[int, ...] = ()) -> ArraySpec:
        names = (dimension, "factor")[: 1 + len(columns)]
        return ArraySpec(f"truth/{name}", (rows, *columns), (min(TRUTH_ROWS, rows), *columns), dtype, names)

    return {
        "user_traits": spec("user_traits", users, "user", "float32", (model.factors,)),
        "item_traits": spec("item_traits", items, "item", "float32", (model.factors,)),
        "user_bias": spec("user_bias", users, "user", "float32"),
        "item_bias": spec("item_bias", items, "item", "float32"),
        "pi": spec("pi", users, "user", "float64"),
        "psi": spec("psi", items, "item", "float64"),
    }


def _write_truth(stages: Stages, scratch: Scratch, model: Model, pi: np.ndarray, psi: np.ndarray) -> list[Any]:
    """Write the parameters beside the counts; entries of the manifest."""
    tasks = []
    for side, selection in (("user", pi), ("item", psi)):
        for chunk in range(-(-selection.size // TRUTH_ROWS)):
            part = selection[chunk * TRUTH_ROWS : (chunk + 1) * TRUTH_ROWS]
            tasks.append((scratch, model, side, chunk, part))
    entries = [entry for found in stages.run("write-truth", write_truth, tasks) for entry in found]
    manifest = write_metadata(scratch.storage, "", list(_truth_specs(model).values()))
    return entries + [(key, size, check) for key, (size, check) in manifest.items()]


def write_truth(scratch: Scratch, model: Model, side: str, chunk: int, selection: np.ndarray) -> list[Any]:
    """Task: write one chunk of a side's parameters."""
    specs = _truth_specs(model)
    first = chunk * TRUTH_ROWS
    rows = first, first + selection.size
    streams = (USER_TRAITS, USER_BIASES) if side == "user" else (ITEM_TRAITS, ITEM_BIASES)
    return [
        write_block(scratch.storage, "", specs[f"{side}_traits"], (chunk, 0), model.traits(streams[0], *rows)),
        write_block(scratch.storage, "", specs[f"{side}_bias"], (chunk,), model.biases(streams[1], *rows)),
        write_block(scratch.storage, "", specs["pi" if side == "user" else "psi"], (chunk,), selection),
    ]


def read_truth(counts: Counts) -> dict[str, np.ndarray]:
    """The parameters that a store was simulated from: user_traits, item_traits, user_bias, item_bias, pi, psi."""
    users, items = counts.shape
    key = "truth/user_traits/zarr.json"
    if key not in counts.sealed.manifest:
        raise InputError(f"{counts.path} keeps no truth; simulate with truth=True")
    factors = json.loads(counts.sealed.read_bytes(key))["shape"][1]
    specs = _truth_specs(Model(users, items, 0, factors, 0))
    return {name: counts.sealed.read_array(spec) for name, spec in specs.items()}
