"""Tag stores: links from every source, refused where they cannot be, sound and told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse

import pairsym_dask as ps
from pairsym_dask.errors import InputError, StoreError
from pairsym_dask.report.info import describe
from pairsym_dask.store.verify import verify

LINKS = pd.DataFrame(
    {
        "item": ["go", "go", "chess", "bridge", "poker", "poker"],
        "tag": ["board", "old", "board", "cards", "cards", "bluff"],
        "weight": [2.0, 0.5, 1.0, 1.0, 1.5, 3.0],
    }
)


def test_the_same_links_make_the_same_store_from_every_source(tmp_path: Path) -> None:
    LINKS.to_parquet(tmp_path / "links.parquet")
    LINKS.to_csv(tmp_path / "links.csv", index=False)
    symbols, tags = (sorted(LINKS[name].unique()) for name in ("item", "tag"))
    codes = (pd.Index(labels).get_indexer(LINKS[name]) for name, labels in (("item", symbols), ("tag", tags)))
    matrix = scipy.sparse.csr_matrix((LINKS["weight"], tuple(codes)), shape=(len(symbols), len(tags)))
    made = [
        ps.ingest_tags(source, tmp_path / f"{k}.zarr", weight="weight")
        for k, source in enumerate(
            [
                LINKS,
                pa.Table.from_pandas(LINKS),
                str(tmp_path / "links.parquet"),
                tmp_path / "links.csv",
                [LINKS[:2], LINKS[2:]],
                LINKS.to_dict("list"),
            ]
        )
    ]
    made.append(ps.ingest_tags(matrix, tmp_path / "matrix.zarr", symbol=symbols, tag=tags))
    assert len({store.digest for store in made}) == 1
    assert (made[0].to_scipy() != matrix).nnz == 0
    assert made[0].symbols_a_tag().tolist() == [1, 2, 2, 1]
    rows = made[0].rows(made[0].find(np.array(["poker", "nobody", "go"], object)))
    assert np.diff(rows.indptr).tolist() == [2, 0, 2]
    assert rows.counts.tolist() == [3.0, 1.5, 2.0, 0.5]


def test_tag_stores_are_opened_verified_and_described(tmp_path: Path) -> None:
    ps.ingest_tags(LINKS, tmp_path / "tags.zarr")
    assert ps.open_tags(tmp_path / "tags.zarr").nnz == 6
    found = verify(tmp_path / "tags.zarr")
    assert found.sound
    assert found.kind == "tags"
    assert describe(str(tmp_path / "tags.zarr"))[1] == "  4 symbols x 4 tags, 6 links, 1.5 a symbol"
    chunk = next(p for p in (tmp_path / "tags.zarr").rglob("c.0.0") if "by_user" in str(p))
    chunk.write_bytes(chunk.read_bytes()[:-1] + b"?")
    assert not verify(tmp_path / "tags.zarr").sound


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("weight", -3.0, r"1 with a negative weight \(first: '-3.0' in row 4 of the frame\)"),
        ("weight", np.nan, r"1 without a weight \(first: row 4 of the frame\)"),
        ("weight", np.inf, r"1 with an infinite weight"),
        ("item", None, r"1 without a symbol \(first: row 4"),
        ("tag", None, r"1 without a tag \(first: row 4"),
    ],
)
def test_links_that_cannot_be_are_refused_by_row(tmp_path: Path, column: str, value: object, words: str) -> None:
    bad = LINKS.copy()
    bad.loc[4, column] = value
    with pytest.raises(InputError, match=words):
        ps.ingest_tags(bad, tmp_path / "tags.zarr", weight="weight")
    assert not (tmp_path / "tags.zarr").exists() or not any((tmp_path / "tags.zarr").iterdir())
    kept = ps.ingest_tags(bad, tmp_path / "kept.zarr", weight="weight", invalid="drop")
    assert kept.nnz == 5


def test_labels_of_a_matrix_must_be_its_own(tmp_path: Path) -> None:
    matrix = scipy.sparse.csr_matrix(np.eye(3))
    with pytest.raises(InputError, match="symbol must hold 3 different labels"):
        ps.ingest_tags(matrix, tmp_path / "tags.zarr", symbol=["a", "b"])
    assert ps.ingest_tags(matrix, tmp_path / "tags.zarr").symbol_ids.tolist() == [0, 1, 2]


def test_stores_of_pairs_and_of_tags_are_told_apart(tmp_path: Path) -> None:
    ps.ingest(LINKS, tmp_path / "pairs.zarr", user="item", item="tag")
    with pytest.raises(StoreError, match="store of pairs, not of tags"):
        ps.open_tags(tmp_path / "pairs.zarr")
    with pytest.raises(InputError, match="a tag store is wanted here, not a DataFrame"):
        ps.open_tags(LINKS)  # type: ignore[arg-type]
