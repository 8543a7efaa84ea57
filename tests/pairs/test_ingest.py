"""`ingest`: the same pairs make the same store however they come."""

from __future__ import annotations

import dask
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse
import sparse
from helpers.pairs import add_up, check, check_dense, make_frame
from hypothesis import given, settings
from hypothesis import strategies as st

import pairsym_dask as ps
from pairsym_dask.pairs import writing

INT64 = np.iinfo(np.int64)


@pytest.mark.parametrize("labels", ["text", "numbers"])
@pytest.mark.parametrize("shape", [(90, 40), (40, 90), (1, 60), (60, 1), (700, 5)])
def test_store_holds_sums_of_pairs(tmp_path, small_tasks, labels, shape):
    frame = make_frame(users=shape[0], items=shape[1], labels=labels)
    check(ps.ingest(frame, tmp_path / "c.zarr", count="n"), add_up(frame))


def ways(frame, folder):
    """The same pairs in many guises: (source, keyword arguments)."""
    folder.mkdir()
    shuffled = frame.sample(frac=1, random_state=1)
    repeated = frame.loc[frame.index.repeat(frame["n"])]
    summed = add_up(frame).reset_index()
    thirds = np.array_split(np.arange(len(frame)), 3)

    frame.to_parquet(folder / "one.parquet", row_group_size=100)
    (folder / "many").mkdir()
    for k, rows in enumerate(thirds):
        shuffled.iloc[rows].to_parquet(folder / "many" / f"part-{k}.parquet")
    frame.to_csv(folder / "a.csv", index=False)
    shuffled.to_csv(folder / "a.tsv", index=False, sep="\t")
    repeated[["item", "user"]].to_csv(folder / "b.csv", index=False)
    frame.to_csv(folder / "c.csv.gz", index=False)
    shuffled.to_csv(folder / "q.csv", index=False, quoting=1)
    mixed = [folder / "one-third.parquet", folder / "two-thirds.csv"]
    frame.iloc[thirds[0]].to_parquet(mixed[0])
    frame.iloc[np.concatenate(thirds[1:])].to_csv(mixed[1], index=False)
    odd = shuffled.assign(user=shuffled["user"].astype("category"), n=shuffled["n"].astype("float32"))
    n = {"count": "n"}
    return {
        "frame": (frame, n),
        "shuffled, categories, float counts": (odd, n),
        "one row a pair": (repeated.drop(columns="n"), {}),
        "added up": (summed, n),
        "other names": (frame.set_axis(["who", "what", "n"], axis=1), n | {"user": "who", "item": "what"}),
        "arrow": (pa.Table.from_pandas(shuffled), n),
        "parquet": (folder / "one.parquet", n),
        "folder": (str(folder / "many"), n),
        "glob": (str(folder / "many" / "*.parquet"), n),
        "list": ([folder / "many" / f"part-{k}.parquet" for k in (2, 0, 1)], n),
        "csv": (folder / "a.csv", n),
        "tsv": (folder / "a.tsv", n),
        "csv without counts": (folder / "b.csv", {}),
        "gzip": (folder / "c.csv.gz", n),
        "quoted": (folder / "q.csv", n),
        "parquet and csv": (mixed, n),
        "url": ((folder / "one.parquet").as_uri(), n),
    }


@pytest.mark.slow
@pytest.mark.parametrize("labels", ["text", "numbers"])
def test_same_pairs_make_the_same_store_however_they_come(tmp_path, small_tasks, labels):
    frame = make_frame(labels=labels)
    digests = {}
    for k, (name, (source, options)) in enumerate(ways(frame, tmp_path / "in").items()):
        digests[name] = ps.ingest(source, tmp_path / f"{k}.zarr", **options).digest
    assert len(set(digests.values())) == 1, digests
    check(ps.open_counts(tmp_path / "0.zarr"), add_up(frame))


def test_dask_frame_makes_the_same_store(tmp_path, small_tasks):
    import dask.dataframe as dd

    frame = make_frame()
    one = ps.ingest(frame, tmp_path / "a.zarr", count="n")
    two = ps.ingest(dd.from_pandas(frame, npartitions=4), tmp_path / "b.zarr", count="n")
    assert one.digest == two.digest


def test_store_depends_neither_on_scheduler_nor_on_task_size(tmp_path, monkeypatch):
    frame = make_frame()
    digests = set()
    for k, (rows, threads) in enumerate([(10**6, 1), (50, 3), (333, 2)]):
        monkeypatch.setattr(writing, "ROWS", rows)
        digests.add(ps.ingest(frame, tmp_path / f"{k}.zarr", count="n", threads=threads).digest)
    with dask.config.set(scheduler="synchronous"):
        digests.add(ps.ingest(frame, tmp_path / "s.zarr", count="n", memory="16MiB").digest)
    assert len(digests) == 1


@pytest.mark.cluster
def test_cluster_makes_the_same_store(tmp_path, cluster):
    from distributed import Client

    frame = make_frame()
    frame.to_parquet(tmp_path / "a.parquet", row_group_size=300)
    one = ps.ingest(tmp_path / "a.parquet", tmp_path / "one.zarr", count="n")
    with Client(cluster) as client:
        # Once more than once: a cluster remembers keys of tasks for a while.
        others = [ps.ingest(tmp_path / "a.parquet", tmp_path / f"{k}.zarr", count="n", client=client) for k in range(3)]
        with pytest.raises(ps.InputError, match="no such file"):
            ps.ingest(tmp_path / "b.parquet", tmp_path / "three.zarr")
    assert {other.digest for other in others} == {one.digest}


def test_remote_store_and_source(small_tasks):
    import fsspec

    frame = make_frame()
    with fsspec.open("memory://pairs/a.parquet", "wb") as file:
        frame.to_parquet(file)
    counts = ps.ingest("memory://pairs/*.parquet", "memory://stores/a.zarr", count="n")
    check(counts, add_up(frame))
    assert not [key for key in counts.storage.listing() if "scratch" in key]


@st.composite
def some_pairs(draw):
    text = draw(st.booleans())
    label = st.text(max_size=5) if text else st.integers(INT64.min, INT64.max) | st.integers(-3, 3)
    few = st.lists(label, min_size=1, max_size=8, unique=True)
    users, items = draw(few), draw(few)
    number = draw(st.sampled_from([st.integers(0, 300), st.floats(0, 1e6), st.integers(0, 2**33)]))
    row = st.tuples(st.sampled_from(users), st.sampled_from(items), number)
    rows = draw(st.lists(row, min_size=1, max_size=60).filter(lambda rows: any(row[2] > 0 for row in rows)))
    return pd.DataFrame(rows, columns=["user", "item", "n"])


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(frame=some_pairs(), rows=st.sampled_from([3, 20, 1000]), seed=st.integers(0, 99))
def test_any_pairs_come_back(tmp_path_factory, frame, rows, seed):
    folder = tmp_path_factory.mktemp("any")
    with pytest.MonkeyPatch.context() as patch, dask.config.set(scheduler="synchronous"):
        patch.setattr(writing, "ROWS", rows)
        counts = ps.ingest(frame, folder / "a.zarr", count="n", invalid="drop")
        again = ps.ingest(frame.sample(frac=1, random_state=seed), folder / "b.zarr", count="n", invalid="drop")
    assert counts.digest == again.digest
    got = counts.to_scipy().tocoo()
    found = {(counts.user_ids[i], counts.item_ids[j]): n for i, j, n in zip(got.row, got.col, got.data, strict=True)}
    wanted = add_up(frame).to_dict()
    assert found.keys() == wanted.keys()
    assert all(found[pair] == pytest.approx(wanted[pair], rel=1e-13) for pair in wanted)
    assert counts.user_ids.tolist() == sorted({user for user, _ in wanted})


@pytest.mark.parametrize("shape", [(40, 7), (7, 40), (300, 3)])
@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "array", "COO", "GCXS", "bool"])
def test_matrix_keeps_empty_rows_and_columns(tmp_path, small_tasks, shape, kind):
    rng = np.random.default_rng(0)
    dense = rng.integers(1, 9, shape) * (rng.random(shape) < 0.2)
    dense[:3] = dense[-2:] = dense[:, 1] = 0
    dense[5 % shape[0], 0] = 4
    if kind == "bool":
        matrix, dense = scipy.sparse.csr_matrix(dense > 0), dense > 0
    elif kind in ("COO", "GCXS"):
        matrix = sparse.COO.from_numpy(dense).asformat(kind.lower())
    else:
        matrix = scipy.sparse.csr_array(dense) if kind == "array" else scipy.sparse.csr_matrix(dense).asformat(kind)
    counts = ps.ingest(matrix, tmp_path / "c.zarr")
    check_dense(counts, dense)
    assert counts.user_ids.tolist() == list(range(shape[0]))


def test_matrix_entries_are_added_up_and_zeros_dropped(tmp_path):
    matrix = scipy.sparse.coo_matrix(([1, 2, 0, 0.5], ([0, 0, 1, 2], [1, 1, 0, 1])), (4, 2))
    counts = ps.ingest(matrix, tmp_path / "c.zarr")
    np.testing.assert_array_equal(counts.to_scipy().toarray(), [[0, 3], [0, 0], [0, 0.5], [0, 0]])
    assert counts.nnz == 2
