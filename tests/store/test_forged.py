"""A store from a stranger, its digests right, does not crash, hang, swell or call out: it answers, or says why not."""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers import forged_child, forged_runs
from helpers.forged_chunks import bomb
from helpers.forger import Forger, link_copy, put
from helpers.forgeries import forge
from numcodecs.zstd import Zstd

import pairsym_dask as ps
from pairsym_dask.errors import DamagedStoreError, StoreError
from pairsym_dask.report.info import describe
from pairsym_dask.store.arrays import ArraySpec
from pairsym_dask.store.lock import holder
from pairsym_dask.store.model_store import ModelStore
from pairsym_dask.store.records import RECORD_BYTES, unseal
from pairsym_dask.store.storage import open_storage
from pairsym_dask.store.verify import verify

pytestmark = pytest.mark.draws


def change(forger: Forger, path: str, work: Callable[[np.ndarray], Any]) -> None:
    """Change the numbers of the first chunk of an array of the counts, all digests right."""
    key = next(key for key in sorted(forger.record["files"]) if key.startswith(f"{path}/c."))
    values = np.frombuffer(Zstd().decode((forger.counts / key).read_bytes()), forger.specs[path].dtype).copy()
    work(values)
    forger.write_chunk(forger.counts, forger.record, key, bytes(Zstd(level=1).encode(values.tobytes())))
    forger.reseal_counts()


def use_counts(forger: Forger) -> None:
    ps.open_counts(forger.counts).to_scipy()


def fit(forger: Forger, sweeps: int = 3) -> None:
    ps.PairedSymbols(factors=2).fit(forger.counts, forger.model, sweeps=sweeps, progress=False, threads=1)


@pytest.mark.parametrize("order", ["by_user", "by_item"])
@pytest.mark.parametrize(
    ("array", "work", "words"),
    [
        ("index", lambda v: v.__setitem__(0, 2**32 - 1), "columns must be from 0 to"),
        ("index", lambda v: v.__setitem__(slice(0, 2), v[1::-1].copy()), "columns must rise in every row"),
        ("index", lambda v: v.__setitem__(1, v[0]), "columns must rise in every row"),
        ("length", lambda v: v.__setitem__(0, 2**31), "gives its rows"),
        ("length", lambda v: v.__setitem__(0, v[0] + 1), "gives its rows"),
        ("count", lambda v: v.__setitem__(0, 0), "counts must be finite and above 0"),
    ],
)
def test_a_kernel_never_sees_a_pair_that_cannot_be(
    order: str, array: str, work: Callable[[np.ndarray], Any], words: str, forger: Forger
) -> None:
    change(forger, f"{order}/{array}", work)
    with pytest.raises(DamagedStoreError, match=words):
        fit(forger)
    assert not verify(forger.counts).sound


def test_columns_of_another_group_are_refused(forger: Forger) -> None:
    """Within the store's columns, but not within the tile's: tables of a group end where the group does."""
    span = ps.open_counts(forger.counts).cuts["items"].span
    key = "by_item/index"
    change(forger, key, lambda values: values.__setitem__(int(np.argmax(values)), span))
    with pytest.raises(DamagedStoreError, match=rf"columns must be from 0 to {span - 1}"):
        fit(forger)


def test_bombs_are_refused_before_they_are_decoded(forger: Forger) -> None:
    key = next(key for key in forger.record["files"] if key.startswith("by_user/index/c."))
    sound = (forger.counts / key).read_bytes()
    size = len(Zstd().decode(sound))
    most = forger.specs["by_user/index"].file_bytes
    for data in (bomb(2**27), bomb(2**27, size), sound + bomb(2**26), sound + sound, bomb(2**34)):
        assert len(data) < most or len(data) < 2**20
        forger.write_chunk(forger.counts, forger.record, key, data)
        forger.reseal_counts()
        with pytest.raises(DamagedStoreError, match=r"declares another size|is not a chunk|chunks cannot have"):
            use_counts(forger)


def test_strings_of_absurd_number_or_length_are_refused() -> None:
    spec = ArraySpec("label", (3,), (3,), "string", ("user",), compressed=True, domain="rising")
    sound = spec.encode(np.array(["a", "b", "c"], object))
    assert spec.decode(bytes(sound), (0,)).tolist() == ["a", "b", "c"]
    for raw in (
        struct.pack("<I", 2**32 - 1),
        struct.pack("<I", 3) + struct.pack("<I", 2**32 - 1) + b"abc",
        struct.pack("<I", 3),
        b"",
        struct.pack("<I", 3) + 3 * (struct.pack("<I", 1) + b"a"),
    ):
        with pytest.raises((ValueError, RuntimeError), match=r"strings|corrupt|rising|size|invalid"):
            spec.decode(bytes(Zstd().encode(raw)), (0,))
    with pytest.raises(ValueError, match="declares another size"):
        spec.decode(bomb(2**28), (0,))


@pytest.mark.parametrize("value", [True, -1, 1.0, "150", None, 2**32, [150], 10**400])
@pytest.mark.parametrize("name", ["users", "items"])
def test_row_counts_are_whole_numbers_within_range(name: str, value: Any, forger: Forger) -> None:
    forger.record["layout"][name] = value
    forger.reseal_counts()
    with pytest.raises(DamagedStoreError, match=f"layout.{name} must be a whole number from 1 to"):
        use_counts(forger)
    for commit in forger.commits:
        commit["rows"][name] = value
    forger.reseal_commits()
    with pytest.raises(DamagedStoreError, match=f"rows.{name} must be a whole number from 1 to"):
        ps.load(forger.model)


def test_every_field_is_missed_by_name(forger: Forger) -> None:
    for name in sorted(set(forger.record) - {"digest", "format", "version"}):
        kept = forger.record.pop(name)
        forger.reseal_counts(honest=False)
        with pytest.raises(DamagedStoreError, match=f"{name} must be .*, not missing"):
            use_counts(forger)
        forger.record[name] = kept
    last = forger.commits[-1]
    for name in sorted(set(last) - {"digest", "format", "version", "parent", "solver"}):
        kept = last.pop(name)
        forger.reseal_commits()
        with pytest.raises(DamagedStoreError, match=f"{name} must be .*, not missing"):
            ps.load(forger.model)
        last[name] = kept


@pytest.mark.parametrize("text", [b"[" * 10**6, b'{"a":' * 10**5, b"[" + b"[]," * 10**6 + b"[]]", b"1" * 10**4, b"[1]"])
def test_records_that_are_hard_to_read_are_not_readable(text: bytes) -> None:
    with pytest.raises(DamagedStoreError, match="not a readable record"):
        unseal(text, "here")


def test_a_record_of_absurd_size_is_not_read(forger: Forger) -> None:
    for path, use in (
        (forger.counts / "counts.json", use_counts),
        (forger.model / "commits/00002.json", fit),
        (forger.model / "commits/00002.json", lambda forger: ps.load(forger.model)),
    ):
        os.truncate(path, RECORD_BYTES + 1)
        with pytest.raises(DamagedStoreError, match=r"a record has .* at most"):
            use(forger)


@pytest.mark.slow
def test_a_manifest_of_many_keys_is_read_once_and_refused_for_what_is_not_there(forger: Forger) -> None:
    entry = forger.record["files"]["zarr.json"]
    forger.record["files"].update({f"by_user/index/c.{k}.9": entry for k in range(300_000)})
    forger.reseal_counts()
    with pytest.raises(DamagedStoreError, match=r"c\.0\.9 is missing"):
        use_counts(forger)


@pytest.mark.parametrize("name", ["99999", "99998", "100000", "9" * 19, "9" * 20, "9" * 200])
def test_a_lock_of_any_number_does_not_make_a_fit_spin(name: str, forger: Forger) -> None:
    put(forger.model / f"lock/{name}.json", b"[" * 10**5)
    os.utime(forger.model / f"lock/{name}.json", (0, 0))
    if name == "9" * 20:
        with pytest.raises(StoreError, match="the last number that a lock can have"):
            fit(forger)
    else:
        fit(forger)
        assert ps.load(forger.model).history["sweep"].iloc[-1] == 3


@pytest.mark.parametrize("name", ["pid", "started", "host", "machine", "id", "since"])
@pytest.mark.parametrize("value", [None, True, -1, 10**400, float("inf"), "x", [], "a" * 5000])
def test_a_holder_that_cannot_be_is_an_unknown_one(name: str, value: Any, forger: Forger) -> None:
    record: dict[str, Any] = {"id": "a", "host": "h", "machine": "m", "pid": 1, "started": 0.0, "since": "now"}
    put(forger.model / "lock/00001.json", json.dumps(record | {name: value}).encode())
    os.utime(forger.model / "lock/00001.json", (0, 0))
    found = holder(open_storage(forger.model), reading=True)
    assert found is not None
    assert not found.alive


def test_a_lock_that_is_listed_and_cannot_be_read_is_told(forger: Forger) -> None:
    (forger.model / "lock").mkdir(exist_ok=True)
    (forger.model / "lock/00001.json").symlink_to("/nowhere")
    with pytest.raises(StoreError, match="listed but cannot be read"):
        fit(forger)


@pytest.mark.parametrize(
    "path",
    ["http://127.0.0.1:9/counts.zarr", "s3://bucket/counts.zarr", "simplecache::http://127.0.0.1:9/x", "ftp://h/x"],
)
def test_no_address_out_of_a_store_is_called_unasked(
    path: str, forger: Forger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket.socket, "connect", forged_child.refuse_network)
    for commit in forger.commits:
        commit["counts"]["path"] = path
    forger.reseal_commits()
    model = ps.load(forger.model)
    with pytest.raises(StoreError, match=r"another kind of place than its own.*; give its place with counts="):
        model.recommend("u000")
    assert len(ps.load(forger.model, counts=forger.counts).recommend("u000")) > 0
    assert "not opened unasked" in describe(str(forger.model))[-1]


@pytest.mark.parametrize(
    ("url", "path", "allowed"),
    [
        ("s3://models/m.zarr", "s3://data/c.zarr", True),
        ("s3://models/m.zarr", "gs://data/c.zarr", False),
        ("s3://models/m.zarr", "s3://data/c.zarr::http://h/x", False),
        ("s3://models/m.zarr", "/data/c.zarr", True),
        ("gs://models/m.zarr", "gs://data/c.zarr", True),
        ("az://models/m.zarr", "az://data/c.zarr", True),
        ("az://models/m.zarr", "az://data@elsewhere.blob.core.windows.net/c.zarr", False),
        ("abfs://models@mine.dfs.core.windows.net/m.zarr", "abfs://data@mine.dfs.core.windows.net/c.zarr", True),
        ("abfs://models@mine.dfs.core.windows.net/m.zarr", "abfs://data@other.dfs.core.windows.net/c.zarr", False),
        ("http://host/m.zarr", "http://host/c.zarr", True),
        ("http://host/m.zarr", "http://other/c.zarr", False),
    ],
)
def test_counts_are_opened_unasked_only_where_the_model_is(url: str, path: str, allowed: bool, forger: Forger) -> None:
    commit = ModelStore(forger.model).commits()[-1]
    commit.record["counts"]["path"] = path
    commit.storage.url = url
    if allowed:
        assert commit.counts_address == path
    else:
        with pytest.raises(StoreError, match="another kind of place"):
            _ = commit.counts_address


def test_a_model_of_other_shapes_than_its_counts_is_refused_each_time(forger: Forger) -> None:
    """Seen items of a longer side would be followed beyond the tables; the second look must not be kinder."""
    other = forger.counts.parent / "other.zarr"
    frame = {"user": ["u000", "u001"], "item": [1, 99]}
    counts = ps.ingest(pd.DataFrame(frame), other)
    for commit in forger.commits:
        commit["counts"] = {"path": "other.zarr", "digest": counts.digest}
    forger.reseal_commits()
    model = ps.load(forger.model)
    for _ in range(2):
        with pytest.raises(StoreError, match=r"is not the counts store that .* was fitted to"):
            model.recommend("u000")


@pytest.mark.parametrize(
    ("array", "value"),
    [
        ("users/mean", np.nan), ("items/mean", np.inf), ("items/precision", -1.0), ("items/precision", np.nan),
        ("items/bias_precision", 0.0), ("items/selection", -1.0), ("items/selection", np.inf), ("users/bias", np.nan),
    ],
)  # fmt: skip
@pytest.mark.parametrize("model", ["model.zarr", "shards.zarr"])
def test_a_posterior_that_cannot_be_is_refused(
    model: str, array: str, value: float, base: Path, tmp_path: Path
) -> None:
    shutil.copytree(base / "base", tmp_path / "work")
    forger = Forger(tmp_path / "work", 0, model)
    commit, spec = forger.commits[-1], forger.arrays[array]
    values = np.frombuffer(forger.read_chunk(commit, spec, 0), spec.dtype).copy()
    values[0] = value
    forger.replace_chunk(commit, spec, 0, values.tobytes())
    forger.reseal_commits()
    with pytest.raises(DamagedStoreError, match=f"{array}.*its values must be"):
        ps.load(forger.model).recommend("u000")
    assert not verify(forger.model).sound


def test_labels_rise_so_that_each_is_found_once(forger: Forger) -> None:
    change(forger, "items/label", lambda values: values.__setitem__(1, values[0]))
    with pytest.raises(DamagedStoreError, match=r"items/label.*its values must be rising"):
        _ = ps.open_counts(forger.counts).item_ids


def test_pipes_devices_and_links_in_a_store_are_no_files_of_it(forger: Forger) -> None:
    key = next(key for key in sorted(forger.record["files"]) if key.startswith("by_user/index/c."))
    (forger.counts / key).rename(forger.counts / "aside")
    os.mkfifo(forger.counts / key)
    with pytest.raises(StoreError):
        use_counts(forger)
    with pytest.raises(StoreError, match="is not a plain file"):
        open_storage(forger.counts).read(key)
    (forger.counts / "aside").rename(forger.counts / key)
    outside = forger.counts.parent / "outside"
    (forger.model / "commits").rename(outside)
    (forger.model / "commits").symlink_to(outside)
    with pytest.raises(StoreError, match="is a link, which no folder inside a store may be"):
        fit(forger)


@pytest.mark.parametrize("target", ["/nowhere", "/dev/zero", "../../elsewhere"])
def test_a_record_that_is_a_link_is_not_followed(target: str, forger: Forger) -> None:
    put(forger.counts.parent / "elsewhere", bytes(100))
    path = forger.model / "commits/00001.json"
    path.unlink()
    path.symlink_to(target)
    with pytest.raises(StoreError, match=r"cannot (be )?read"):
        ps.load(forger.model)
    assert not verify(forger.model).sound


def test_texts_of_a_store_do_not_steer_a_terminal(forger: Forger) -> None:
    forger.record["source"] = "\x1b[2Jplays\ud800.csv"
    forger.reseal_counts()
    assert ps.open_counts(forger.counts).record["source"] == r"\x1b[2Jplays\ud800.csv"


def test_a_total_that_does_not_go_with_the_pairs_is_refused(forger: Forger) -> None:
    forger.record["total"] = (0.0).hex()
    forger.reseal_counts()
    with pytest.raises(StoreError, match="total"):
        ps.open_counts(forger.counts)


def test_a_bound_of_nothing_that_falls_is_a_warning(forger: Forger) -> None:
    forger.commits[-1]["scalars"]["elbo"] = (0.0).hex()
    forger.reseal_commits()
    with pytest.warns(UserWarning, match="the bound fell by"):
        ps.PairedSymbols(factors=2).fit(forger.counts, forger.model, sweeps=3, progress=False, threads=1)


@pytest.mark.parametrize("forged", [lambda v: v[:-1], lambda v: np.append(v[:-1], 0.0), lambda v: -v])
def test_priors_of_a_chain_that_cannot_be_are_refused(base: Path, tmp_path: Path, forged: Callable[..., Any]) -> None:
    shutil.copytree(base / "base", tmp_path / "work")
    forger = Forger(tmp_path / "work", 0, "chain.zarr")
    priors = forger.commits[-1]["priors"]
    priors["items"] = base64.b64encode(forged(np.frombuffer(base64.b64decode(priors["items"]))).tobytes()).decode()
    forger.reseal_commits()
    with pytest.raises(StoreError, match="items"):
        ps.load(forger.model)


def check(outcome: forged_runs.Outcome) -> None:
    print(f"\n{outcome}")
    assert outcome.crashes == []
    assert outcome.hangs == []
    assert outcome.raw == [], "\n".join(one.splitlines()[0] for one in outcome.raw) + "\n".join(outcome.raw[:3])
    assert outcome.grown < forged_child.ROOM
    answered = [name for name, times in outcome.found.items() if name.endswith("answered") and times]
    refused = [name for name, times in outcome.found.items() if name.endswith("refused") and times]
    tried = [len(forged_child.actions(Path(), model)) for model in forged_child.MODELS]
    assert len(answered) == sum(tried)  # forgeries come through to every action
    assert len(refused) >= len(answered) - 2 * len(tried)  # and are refused by all but the two that report instead


@pytest.mark.slow
def test_forgeries_are_answered_or_refused(base: Path) -> None:
    outcome = forged_runs.run(base, 0, 300)
    assert outcome.forgeries == 300
    check(outcome)


@pytest.mark.long
def test_long_forgeries(base: Path) -> None:
    outcome = forged_runs.run(base, 1000, 21_000, processes=2)
    assert outcome.forgeries == 20_000
    check(outcome)


def test_forgeries_are_the_same_for_the_same_number(base: Path, tmp_path: Path) -> None:
    made = []
    for name in ("one", "two"):
        link_copy(base / "base", base / name)
        made.append((forge(Forger(base / name, 7)), sorted(p.stat().st_size for p in (base / name).rglob("*"))))
    assert made[0] == made[1]
