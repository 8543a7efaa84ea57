"""Forgeries of chunks: values that cannot be, frames that are bombs, strings without end."""

from __future__ import annotations

import base64
import random
import struct
from typing import Any

import numpy as np
from numcodecs.zstd import Zstd

from helpers.forger import Forger
from pairsym_dask.store.arrays import ArraySpec

FLOATS = [0.0, -0.0, 1.0, -1.0, 1e-45, 1e-320, 1e30, -1e30, 3e38, 1e300, -1e300, np.inf, -np.inf, np.nan]


def _values(forger: Forger, spec: ArraySpec, raw: bytes) -> np.ndarray:
    """The raw numbers of a chunk, changed."""
    rng = forger.random
    values = np.frombuffer(raw, spec.dtype).copy()
    used = np.flatnonzero(values)
    pool = used if used.size and rng.random() < 0.8 else np.arange(values.size)
    at = rng.choice(pool.tolist())
    change = rng.randrange(6)
    if change == 0:
        values[at] = _strange_number(rng, values.dtype)
    elif change == 1:
        values[:] = _strange_number(rng, values.dtype)
    elif change == 2:
        values[pool] = values[pool][::-1]
    elif change == 3:
        values[at] = values[rng.choice(pool.tolist())]
    elif change == 4:
        with np.errstate(over="ignore"):
            values[at] = values[at] + values.dtype.type(1)
    else:
        values = np.frombuffer(rng.randbytes(values.nbytes), spec.dtype).copy()
    return values


def _strange_number(rng: random.Random, dtype: np.dtype) -> Any:
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return dtype.type(rng.choice(FLOATS))
    most = int(np.iinfo(dtype).max)
    return dtype.type(rng.choice([0, 1, 10, 11, 12, 149, 150, 151, most, most // 2]) % (most + 1))


def counts_values(forger: Forger) -> None:
    """Values of one chunk of the counts, the sums of all digests right."""
    keys = [key for key in sorted(forger.record["files"]) if key.rsplit("/", 1)[0] in forger.specs and "/c." in key]
    for key in forger.random.sample(keys, forger.random.choice([1, 1, 2])):
        spec = forger.specs[key.rsplit("/", 1)[0]]
        raw = Zstd().decode((forger.counts / key).read_bytes())
        text = spec.dtype == "string"
        changed = _strings(forger.random, raw) if text else _values(forger, spec, raw).tobytes()
        forger.write_chunk(forger.counts, forger.record, key, bytes(Zstd(level=1).encode(changed)))
    forger.reseal_counts()


def _strings(rng: random.Random, raw: bytes) -> bytes:
    change = rng.randrange(7)
    at = rng.randrange(0, max(1, len(raw) - 4))
    if change == 0:
        return struct.pack("<I", rng.choice([0, 1, 149, 151, 2**31, 2**32 - 1])) + raw[4:]
    if change == 1:
        return raw[:4] + struct.pack("<I", rng.choice([0, 1, 2**16, 2**31, 2**32 - 1])) + raw[8:]
    if change == 2:
        return raw[:at]
    if change == 3:
        return raw[:at] + rng.randbytes(4) + raw[at + 4 :]
    if change == 4:
        return raw + rng.randbytes(50)
    if change == 5:
        return raw[:4] + bytes(len(raw) - 4)
    return b""


def rows_of_a_tile(forger: Forger) -> None:
    """Row lengths that sum to the same number of pairs, or do so only modulo 2^32."""
    rng = forger.random
    key = rng.choice([key for key in sorted(forger.record["files"]) if "/length/c." in key])
    spec = forger.specs[key.rsplit("/", 1)[0]]
    lengths = np.frombuffer(Zstd().decode((forger.counts / key).read_bytes()), spec.dtype).copy()
    change = rng.randrange(3)
    if change == 0:
        total = int(lengths.sum())
        lengths[:] = 0
        lengths[rng.randrange(lengths.size)] = total
    elif change == 1:
        lengths = rng.choice([lengths[::-1].copy(), np.roll(lengths, 1)])
    else:
        lengths[0], lengths[1] = lengths[0] + 2**31, lengths[1] + 2**31
    forger.write_chunk(forger.counts, forger.record, key, bytes(Zstd(level=1).encode(lengths.tobytes())))
    forger.reseal_counts()


def counts_bytes(forger: Forger) -> None:
    """A chunk of the counts that is not what it should be: bombs, several frames, torn frames, noise."""
    rng = forger.random
    key = rng.choice(sorted(key for key in forger.record["files"] if "/c." in key))
    data = (forger.counts / key).read_bytes()
    forger.write_chunk(forger.counts, forger.record, key, _spoil(rng, data))
    forger.reseal_counts()


def bomb(decoded: int, declared: int | None = None) -> bytes:
    """A zstd frame of repeated bytes, 128 KiB a block of four bytes; it may declare another size."""
    frame = b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", decoded if declared is None else declared)
    blocks = -(-decoded // 2**17)
    for block in range(blocks):
        size = min(2**17, decoded - block * 2**17)
        frame += (size << 3 | 1 << 1 | (block == blocks - 1)).to_bytes(3, "little") + b"\0"
    return frame


def _spoil(rng: random.Random, data: bytes) -> bytes:
    change = rng.randrange(10)
    at = rng.randrange(max(1, len(data)))
    declared = len(Zstd().decode(data))
    size = rng.choice([2**26, 2**27, 2**32])  # the first ones are as short as a chunk may be
    if change == 0:
        return bomb(size)
    if change == 1:
        return bomb(size, declared)
    if change == 2:
        return data + bomb(size)
    if change == 3:
        return data + data
    if change == 4:
        return struct.pack("<II", 0x184D2A50, 0) + data  # a frame to skip
    if change == 5:
        return data[:at]
    if change == 6:
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
    if change == 7:
        return rng.randbytes(len(data))
    if change == 8:
        return data[:4] + bytes([data[4] ^ 1 << rng.randrange(8)]) + data[5:]
    return b""


def model_values(forger: Forger) -> None:
    """Values of one chunk of the newest generations."""
    rng = forger.random
    for commit in forger.commits[-rng.choice([1, 2]) :]:
        spec = rng.choice([forger.arrays[path] for path in sorted(forger.arrays)])
        block = rng.randrange(spec.grid[0])
        changed = _values(forger, spec, forger.read_chunk(commit, spec, block)).tobytes()
        forger.replace_chunk(commit, spec, block, changed if rng.random() < 0.9 else changed[:-1])
    forger.reseal_commits()


def model_numbers(forger: Forger) -> None:
    """Scalars, and backgrounds or priors, of the newest commit."""
    rng = forger.random
    commit = forger.commits[-1]
    numbers = commit["priors" if "priors" in commit else "backgrounds"]
    if rng.random() < 0.5:
        name = rng.choice(sorted(commit["scalars"]))
        commit["scalars"][name] = rng.choice(["nan", "inf", "-inf", "0x0p+0", "-0x1p+3", "0x1p+1000", "0x1p-1070"])
    else:
        side = rng.choice(["users", "items"])
        values = np.frombuffer(base64.b64decode(numbers[side])).copy()
        change = rng.randrange(4)
        if change == 0:
            values[rng.randrange(values.size)] = rng.choice(FLOATS)
        elif change == 1:
            values = values[:-1]
        elif change == 2:
            values = np.concatenate([values, values])
        else:
            values = -values
        numbers[side] = base64.b64encode(values.tobytes()).decode()
    forger.reseal_commits()
