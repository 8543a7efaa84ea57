"""Damage to files of every kind: always an error that names the file, never a number; sound stores raise no alarm."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from helpers.faults import all_bits, files_of, run_fit, tiny_counts

import pairsym_dask as ps
from pairsym_dask.errors import DamagedStoreError, StoreError
from pairsym_dask.settings import SIDES
from pairsym_dask.store import cuts
from pairsym_dask.store.counts import iterate_rows, open_counts
from pairsym_dask.store.model_store import ModelStore
from pairsym_dask.store.verify import verify

USERS = {"files": 150, "shards": 600}  # one block, or three of a shard


@pytest.fixture(scope="module")
def stores(layout: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a counts store of several chunks of labels, and a model store of four sweeps, the first kept."""
    folder = tmp_path_factory.mktemp("sound")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuts, "LABELS", 40)
        users = USERS[layout]
        labels = {"users": np.array([f"user {n:03d}" for n in range(users)], object), "items": np.arange(11)}
        counts = tiny_counts(folder / "counts.zarr", users, labels=labels)
        run_fit(counts, folder / "model.zarr", 4, keep=[1])
        yield folder


def flip(path: Path, rng: random.Random, siblings: list[Path]) -> None:
    data = bytearray(path.read_bytes())
    bit = rng.randrange(8 * len(data))
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def truncate(path: Path, rng: random.Random, siblings: list[Path]) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data))])


def empty(path: Path, rng: random.Random, siblings: list[Path]) -> None:
    path.write_bytes(b"")


def delete(path: Path, rng: random.Random, siblings: list[Path]) -> None:
    path.unlink()


def swap(path: Path, rng: random.Random, siblings: list[Path]) -> None:
    other = rng.choice(siblings)
    mine, its = path.read_bytes(), other.read_bytes()
    path.write_bytes(its)
    other.write_bytes(mine)


def stale(path: Path, rng: random.Random, siblings: list[Path]) -> None:
    """The bytes of another file of the same kind, such as the same chunk of an earlier sweep."""
    path.write_bytes(rng.choice(siblings).read_bytes())


def scramble(path: Path, rng: random.Random, siblings: list[Path]) -> None:
    data = bytearray(path.read_bytes())
    start = rng.randrange(len(data))
    for n in range(start, min(start + 512, len(data))):
        data[n] = rng.randrange(256)
    path.write_bytes(data)


DAMAGES: list[Callable[[Path, random.Random, list[Path]], None]] = [
    flip,
    truncate,
    empty,
    delete,
    swap,
    stale,
    scramble,
]


def kind_of(path: Path, root: Path) -> str:
    """What a file is for: its place, without sweep, attempt and block."""
    parts = path.relative_to(root).parts
    return "/".join(
        "generation" if p.startswith("generation-") else p.split(".")[0] if p[:1] == "c" else p for p in parts[:-1]
    ) + ("/" + ("chunk" if parts[-1].startswith("c.") else "commit" if parts[-2:-1] == ("commits",) else parts[-1]))


def is_chunk(path: Path) -> bool:
    """Whether a file is a chunk that answers are made of, or a shard of such; only the next sweep reads the others."""
    chunk = path.name.startswith("c.") and path.parent.name != "next"
    return chunk or (path.suffix == ".shard" and not path.name.startswith("users_next"))


def damage_once(sound: Path, work: Path, rng: random.Random, kinds: dict[str, list[Path]], newest_receipt: Path) -> str:
    """Damage one file of a copy and see that it is found; damage and kind of file, "" if no byte changed."""
    kind = rng.choice(sorted(kinds))
    path = rng.choice(kinds[kind])
    damage = rng.choice(DAMAGES)
    siblings = [p for p in kinds[kind] if p != path] or [p for ps_ in kinds.values() for p in ps_ if p != path]
    if damage is delete and path == newest_receipt:
        return ""  # the very state that a fit killed between commit and receipt leaves: nothing is lost
    saved = {p: p.read_bytes() for p in [path, *siblings]}
    try:
        damage(path, rng, siblings)
        if all(p.exists() and p.read_bytes() == data for p, data in saved.items()):
            return ""
        report = verify(work)
        assert not report.sound, f"{damage.__name__} of {path} was not found"
        assert any(str(work) in line for line in report.damage)
    finally:
        for p, data in saved.items():
            if not p.exists() or p.read_bytes() != data:
                p.write_bytes(data)
    return f"{damage.__name__} {kind}"


def damages(stores: Path, folder: Path, name: str, number: int, seed: int) -> dict[str, int]:
    """Damage a store many times; findings by damage and kind of file."""
    work = folder / name
    shutil.copytree(stores / name, work)
    rng = random.Random(seed)
    kinds: dict[str, list[Path]] = {}
    for path in files_of(work):
        kinds.setdefault(kind_of(path, work), []).append(path)
    newest = next(work.glob("generation-00004-*/receipt"), work)
    found: dict[str, int] = {}
    while sum(found.values()) < number:
        kind = damage_once(stores / name, work, rng, kinds, newest)
        if kind:
            found[kind] = found.get(kind, 0) + 1
    assert verify(work).sound
    shutil.rmtree(work)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["counts.zarr", "model.zarr"])
def test_every_damage_is_found(name: str, layout: str, stores: Path, tmp_path: Path) -> None:
    found = damages(stores, tmp_path, name, 300, 0)
    assert sum(found.values()) == 300
    assert {key.split()[0] for key in found} == {damage.__name__ for damage in DAMAGES}
    assert len({key.split(None, 1)[1] for key in found}) > (10 if layout == "files" or name == "counts.zarr" else 7)


@pytest.mark.long
def test_long_damages(stores: Path, tmp_path: Path) -> None:
    for name in ("counts.zarr", "model.zarr"):
        found = damages(stores, tmp_path, name, 6000, 1)
        kinds = Counter(key.split(None, 1)[1] for key, n in found.items() for _ in range(n))
        least = min(kinds.values())
        print(f"\n{name}: {sum(kinds.values())} damages, {len(kinds)} kinds of files, at least {least} each, all found")
    alarms = sum(not verify(stores / name).sound for name in ("counts.zarr", "model.zarr") for _ in range(200))
    print(f"false alarms on sound stores: {alarms} of 400")
    assert not alarms


def read_everything(folder: Path) -> None:
    """What a user would do with both stores."""
    counts = open_counts(folder / "counts.zarr")
    for side in SIDES:
        counts.labels(side)
        counts.marginal(side)
        for _ in iterate_rows(counts, side):
            pass
    model = ps.load(folder / "model.zarr", counts=counts)
    dataset = model.to_xarray()
    dataset.load()


def test_damaged_chunks_are_errors_for_readers_not_numbers(stores: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    shutil.copytree(stores, work)
    read_everything(work)
    newest = next((work / "model.zarr").glob("generation-00004-*"))
    chunks = [p for p in files_of(work / "counts.zarr") + files_of(newest) if is_chunk(p)]
    rng = random.Random(3)
    for path in chunks:
        saved = path.read_bytes()
        name = path.name if path.suffix == ".shard" else path.parent.name
        for damage in (flip, truncate, empty, delete, *(flip,) * (20 if path.suffix == ".shard" else 0)):
            damage(path, rng, [])
            with pytest.raises(DamagedStoreError, match=name):
                read_everything(work)
            path.write_bytes(saved)


def newest_of(store: Path, name: str) -> Path:
    return next(store.glob(f"generation-00004-*/{name}"))


def test_a_lost_commit_record_is_damage_not_a_younger_store(stores: Path, tmp_path: Path) -> None:
    work = tmp_path / "model.zarr"
    shutil.copytree(stores / "model.zarr", work)
    (work / "commits/00004.json").unlink()
    with pytest.raises(DamagedStoreError, match="receipt for sweep 4, but its commit record is gone"):
        ModelStore(work).commits()


@pytest.mark.parametrize("victim", ["chunk", "list", "commit", "lost commit", "zarr.json"])
def test_a_damaged_newest_sweep_is_set_aside_only_when_asked(
    victim: str, layout: str, stores: Path, tmp_path: Path
) -> None:
    shutil.copytree(stores, tmp_path, dirs_exist_ok=True)
    counts, store = open_counts(tmp_path / "counts.zarr"), tmp_path / "model.zarr"
    wanted = all_bits(store)
    path = {
        "chunk": newest_of(store, "items/mean/c.0.0" if layout == "files" else "00/items.0.shard"),
        # The commit itself lists chunks that are files.
        "list": newest_of(store, "users/bias/c.0" if layout == "files" else "manifest.json"),
        "commit": store / "commits/00004.json",
        "lost commit": store / "commits/00004.json",
        "zarr.json": store / "zarr.json",
    }[victim]
    path.write_bytes(path.read_bytes()[:-2] + b"!!")
    if victim == "lost commit":
        path.unlink()
    assert not verify(store).sound
    with pytest.raises(StoreError):
        run_fit(counts, store, 5)
    if victim != "zarr.json":
        assert ps.load(store, sweep=3).history["sweep"].iloc[-1] == 3  # reading the one before is a choice, too
    with pytest.warns(UserWarning, match=r"set aside as damaged: .* is now .*damaged-") as said:
        run_fit(counts, store, 4, discard_damaged=True)
    assert len(said) == (1 if victim in ("zarr.json", "lost commit") else 2)
    assert all_bits(store) == wanted
    assert verify(store).sound
    assert any("set aside earlier" in line for line in verify(store).lines())


def test_nothing_is_set_aside_in_a_sound_store(stores: Path, tmp_path: Path) -> None:
    shutil.copytree(stores, tmp_path, dirs_exist_ok=True)
    wanted = all_bits(tmp_path / "model.zarr")
    run_fit(open_counts(tmp_path / "counts.zarr"), tmp_path / "model.zarr", 4, discard_damaged=True)
    assert all_bits(tmp_path / "model.zarr") == wanted
    assert not list((tmp_path / "model.zarr").glob("damaged-*"))


def test_a_store_without_a_sound_sweep_is_refused(layout: str, stores: Path, tmp_path: Path) -> None:
    shutil.copytree(stores, tmp_path, dirs_exist_ok=True)
    counts, store = open_counts(tmp_path / "counts.zarr"), tmp_path / "model.zarr"
    for path in store.glob(f"generation-*/{'users/mean/c.*' if layout == 'files' else '*/users.*.shard'}"):
        path.unlink()
    with pytest.raises(StoreError, match="no sound sweep any more; start again with another path"):
        run_fit(counts, store, 5, discard_damaged=True)
