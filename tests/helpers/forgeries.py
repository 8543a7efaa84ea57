"""Forgeries of all kinds: of records, of what lies beside them, and of chunks."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from helpers.forged_chunks import counts_bytes, counts_values, model_numbers, model_values, rows_of_a_tile
from helpers.forger import STRANGE, Forger, put
from pairsym_dask.store.fields import MANIFEST
from pairsym_dask.store.records import seal
from pairsym_dask.store.storage import digest


def counts_field(forger: Forger) -> None:
    for _ in range(forger.random.choice([1, 1, 2])):
        forger.change_field(forger.record)
    honest = isinstance(forger.record.get("content"), str) and forger.random.random() < 0.8
    forger.reseal_counts(honest)


def commit_field(forger: Forger) -> None:
    """One commit changed, or all in the same way."""
    rng = forger.random
    if rng.random() < 0.5:
        forger.change_field(rng.choice(forger.commits))
    else:
        state = rng.getstate()
        for commit in forger.commits:
            rng.setstate(state)
            forger.change_field(commit)
    forger.reseal_commits()


def shapes(forger: Forger) -> None:
    """Shapes that agree with each other and not with the data."""
    rng = forger.random
    layout, change = forger.record["layout"], rng.randrange(4)
    if change == 0:
        layout["users"], layout["items"] = layout["items"], layout["users"]
    elif change == 1:
        layout["users"] += rng.choice([-64, -1, 1, 64, 10**6])
    elif change == 2:
        layout["items"] += rng.choice([-1, 1, 5, 10**6])
    else:
        layout["pairs"] += 1
        for side in ("users", "items"):
            tiles = forger.record["tiles"][side]
            tiles[rng.randrange(len(tiles))] += 1
    if rng.random() < 0.5:
        for commit in forger.commits:
            commit["rows"] = {"users": layout["users"], "items": layout["items"]}
    forger.reseal_counts()


def moved_pairs(forger: Forger) -> None:
    """Pairs that tiles owe each other."""
    tiles = forger.record["tiles"][forger.random.choice(["users", "items"])]
    one, two = forger.random.randrange(len(tiles)), forger.random.randrange(len(tiles))
    many = forger.random.choice([1, tiles[one], 5])
    tiles[one], tiles[two] = tiles[one] - many, tiles[two] + many
    forger.reseal_counts()


def model_shapes(forger: Forger) -> None:
    rng = forger.random
    names = [name for name in ("rows", "blocks", "shards") if name in forger.commits[0]]
    name, side = rng.choice(names), rng.choice(["users", "items"])
    step = rng.choice([-1, 1, 64, -64, 1000])
    for commit in forger.commits:
        commit[name][side] += step
        if rng.random() < 0.2:
            commit["settings"]["factors"] += 1
    forger.reseal_commits()


def locks(forger: Forger) -> None:
    """Lock files of strange numbers and holders."""
    rng = forger.random
    holder: dict[str, Any] = {
        "id": "a", "host": "h", "machine": "m", "pid": 1, "started": 0.0, "since": "now",
    }  # fmt: skip
    for _ in range(rng.choice([1, 2, 3])):
        name = rng.choice(["99999", "00001", "100000", "9" * 20, "9" * 200, "00000", "x", "99999999"])
        if rng.random() < 0.5:
            holder[rng.choice(sorted(holder))] = rng.choice(STRANGE)
        text = rng.choice([json.dumps(holder), "[" * 10**5, "", "null", "[]", "1" * 5000, '{"pid":1e999}'])
        path = forger.model / f"lock/{name}{rng.choice(['.json', '.json', '.beat', '.clock'])}"
        put(path, text.encode("utf-8", "surrogatepass"))
        age = rng.choice([0.0, 1e9, 4e9])
        os.utime(path, (age, age))


def texts(forger: Forger) -> None:
    """Records that are hard to read as text: deep, wide, long, torn."""
    rng = forger.random
    path = rng.choice([forger.counts / "counts.json", forger.model / "commits/00002.json", forger.model / "zarr.json"])
    data = path.read_bytes()
    change = rng.randrange(8)
    if change == 0:
        data = b"[" * 10**6
    elif change == 1:
        data = b'{"a":' * 10**5
    elif change == 2:
        data = b"[" + b"[]," * 10**6 + b"[]]"
    elif change == 3:
        data = data[: rng.randrange(len(data))]
    elif change == 4:
        at = rng.randrange(len(data))
        data = data[:at] + rng.randbytes(1) + data[at + 1 :]
    elif change == 5:
        data = data.replace(b'"version":1', b'"version":' + b"1" * 10**5)
    elif change == 6:
        data = b'{"digest":"' + digest(b"{}").encode() + b'"}'
    else:
        data = rng.choice([b"", b"null", b"{}", b"\xff\xfe", b"NaN", b'"x"'])
    put(path, data)


def many_keys(forger: Forger) -> None:
    """A manifest of some thousand keys more."""
    commit = forger.commits[-1]
    which = forger.record if forger.random.random() < 0.5 else forger.listed(commit)
    entry = which["files"]["zarr.json"]
    which["files"].update({f"by_user/index/c.{k}.9": entry for k in range(2000)})
    if which is not forger.record:
        forger.relist(commit, which)
    forger.reseal_counts()


def lists(forger: Forger) -> None:
    """A strange list of a generation's files, which its commit vouches for."""
    commit = forger.commits[-1]
    listed = forger.listed(commit)
    if forger.shards is None or forger.random.random() < 0.8:
        forger.change_field(listed["files"] if forger.random.random() < 0.7 else listed)
        forger.relist(commit, listed)
    else:
        text = forger.random.choice([b"[" * 10**5, b"{}", b"null", b"", b'{"files":{}}', b'{"files":' + b"[" * 10**5])
        forger.write_chunk(forger.model / commit["generation"], commit, MANIFEST, text)
    forger.reseal_commits()


def ends(forger: Forger) -> None:
    """A shard whose end or size is another than it should be, which its list vouches for."""
    rng, commit = forger.random, forger.commits[-1]
    if forger.shards is None:
        lists(forger)
        return
    group = forger.shards.groups[rng.choice(sorted(forger.shards.groups))]
    number = rng.randrange(group.count)
    shard, end = (forger.model / commit["generation"] / group.key(number)).read_bytes(), group.body_bytes(number)
    change, at = rng.randrange(5), rng.randrange(end, len(shard))
    if change == 0:
        shard = shard[:at] + rng.randbytes(1) + shard[at + 1 :]
    elif change == 1:
        shard = shard[:at]
    elif change == 2:
        shard = shard[:end] + shard[end:] * 2
    elif change == 3:
        shard = shard[:-1]
    else:
        shard = shard[:-16] + rng.randbytes(16)
    forger.write_shard(commit, group.key(number), shard, end)
    forger.reseal_commits()


def marks(forger: Forger) -> None:
    """A strange mark of the model store, which all commits vouch for."""
    mark = json.loads((forger.model / "zarr.json").read_bytes())
    forger.change_field(mark)
    data = json.dumps(mark).encode()
    put(forger.model / "zarr.json", data)
    for commit in forger.commits:
        commit["mark"] = digest(data)
    forger.reseal_commits()


def files(forger: Forger) -> None:
    """Things that are no plain files, and files that only seem long."""
    rng = forger.random
    root = rng.choice([forger.counts, forger.model])
    paths = sorted(path for path in root.rglob("*") if path.is_file())
    path = rng.choice(paths)
    change = rng.randrange(7)
    if change in (0, 1, 2, 3):
        path.unlink()
    if change == 0:
        os.mkfifo(path)
    elif change == 1:
        path.symlink_to(rng.choice(["/dev/zero", "/nowhere", "/proc/self/mem", path.name]))
    elif change == 2:
        path.mkdir()
    elif change == 3:
        put(path, b"")
        os.truncate(path, 2**40)
    elif change == 4:
        folder = path.parent if path.parent != root else root / "commits"
        if folder.is_dir():
            folder.rename(root.parent / "elsewhere")
            folder.symlink_to(root.parent / "elsewhere")
    elif change == 5:
        (root / rng.choice(["generation-00009-abc", "removed-x", "commits/00009.json", "damaged-1"])).mkdir(
            parents=True
        )
    else:
        put(
            root / rng.choice(["commits/99999.json", "commits/" + "9" * 200 + ".json", "generation-00007-a/receipt"]),
            b"",
        )


def addresses(forger: Forger) -> None:
    """Where the model remembers its counts."""
    path = forger.random.choice([value for value in STRANGE if isinstance(value, str)])
    for commit in forger.commits:
        commit["counts"]["path"] = path
    forger.reseal_commits()


def orders(forger: Forger) -> None:
    """Commits that follow each other wrongly."""
    rng = forger.random
    one, two = rng.randrange(len(forger.commits)), rng.randrange(len(forger.commits))
    change = rng.randrange(3)
    if change == 0:
        forger.commits[one]["generation"] = forger.commits[two]["generation"]
    elif change == 1:
        forger.commits[one] = dict(forger.commits[two])
    else:
        forger.commits.append(dict(forger.commits[-1], sweep=len(forger.commits)))
    forger.reseal_commits()


def attempts(forger: Forger) -> None:
    """Decisions about attempts: a next sweep that somebody is said to have declared, or anything else."""
    rng = forger.random
    sweep = len(forger.commits) - rng.choice([0, 0, 0, 1, -1])
    folder = rng.choice([f"generation-{sweep:05d}-0123456789ab", forger.commits[-1]["generation"]])
    record = {**forger.commits[-1], "sweep": sweep, "generation": folder, "parent": forger.commits[-1].get("digest")}
    if rng.random() < 0.5:
        os.rename(forger.model / forger.commits[-1]["generation"], forger.model / folder)
    if rng.random() < 0.5:
        forger.change_field(record)
    text = rng.choice([seal(record), seal(record), seal({"given_up": rng.choice(STRANGE)}), b"[" * 10**5, b""])
    put(forger.model / f"attempts/{folder}.json", text)


def packs(forger: Forger) -> None:
    """What a pack says of itself: which sweeps it holds, and of which pairs."""
    rng = forger.random
    listed = rng.choice([[], [0], [len(forger.commits) - 1], [[]], rng.choice(STRANGE), [rng.choice(STRANGE)]])
    put(forger.model / "packed.json", rng.choice([seal({"sweeps": listed}), seal({}), b"null", b"[" * 10**5]))
    if rng.random() < 0.5:
        forger.record["kept"] = rng.choice([[], ["users"], ["items"], ["users", "users"], rng.choice(STRANGE)])
        forger.reseal_counts()


KINDS: list[Callable[[Forger], None]] = [
    counts_field, counts_field, commit_field, commit_field, shapes, moved_pairs, model_shapes, counts_values,
    counts_values, counts_values, rows_of_a_tile, counts_bytes, counts_bytes, model_values, model_values,
    model_numbers, model_numbers, locks, texts, marks, files, addresses, orders, many_keys, attempts, packs,
    lists, ends,
]  # fmt: skip


def forge(forger: Forger) -> list[str]:
    """One forgery of a kind chosen by the forger's number, sometimes two on top of each other; their names."""
    first, second = forger.random.choices(KINDS, k=2)
    first(forger)
    if forger.random.random() < 0.75:
        return [first.__name__]
    try:
        second(forger)
    except (ArithmeticError, AttributeError, LookupError, MemoryError, OSError, RuntimeError, TypeError, ValueError):
        return [first.__name__]  # the first one left nothing that it could change
    return [first.__name__, second.__name__]
