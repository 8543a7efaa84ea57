"""More pairs than 32 bits can count, and files longer than a task."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from helpers.pairs import make_frame

from pairsym_dask.pairs import assemble, checks, files, parts
from pairsym_dask.pairs import runs as grouped
from pairsym_dask.pairs.faults import Faults
from pairsym_dask.store.cuts import Layout, make_cuts
from pairsym_dask.store.local import LocalStorage
from pairsym_dask.store.scratch import Scratch, Stored


def test_more_than_2_to_the_31_pairs_do_not_overflow():
    lengths = np.full(1000, 2**23, np.uint32)  # 8.4e9 pairs
    starts = grouped.make_ranges(lengths, 2**30)
    assert np.diff(starts).max() == 128
    layout = Layout(1000, 10, int(lengths.sum(dtype=np.int64)), "uint8")
    offsets = np.concatenate([[0], lengths]).cumsum(dtype=np.int64)
    batches = assemble.cut_batches(layout, "users", offsets, 2**25)
    assert [block for batch in batches for block in batch] == list(range(layout.cuts["users"].blocks))
    runs = [
        grouped.Run(first, 500, Stored("k", 0, "uint64", 500 * 2**23), None, Stored("l", 0, "uint32", 500), 1, True)
        for first in (0, 500)
    ]
    found = list(assemble._stretches(layout, "users", range(9, 10), runs, offsets))
    first, stop = layout.cuts["users"].row_range(9)
    assert sum(part.keys.size for part in found) == (stop - first) * 2**23
    assert found[0].keys.offset == 8 * (first - found[0].first) * 2**23 > 2**31
    assert make_cuts(10**7, 10**5, 2**34)["items"].tiles > 1


def test_scratch_is_read_beyond_4_gigabytes(tmp_path):
    scratch = Scratch(LocalStorage(str(tmp_path)), "scratch")
    scratch.make("a")
    values = np.arange(10, dtype=np.uint64)
    with open(tmp_path / "scratch" / "a" / "b", "wb") as file:
        file.seek(2**33)
        file.write(values.data)
    stored = Stored("a/b", 0, "uint64", 2**30 + 10)[2**30 + 3 :]
    np.testing.assert_array_equal(scratch.read(stored), values[3:])


def test_row_groups_longer_than_a_task_are_read_in_batches(tmp_path, small_tasks):
    frame = make_frame()
    pq.write_table(pa.Table.from_pandas(frame), tmp_path / "a.parquet")
    (part,), _ = files.file_parts(str(tmp_path / "a.parquet"), parts.Columns("user", "item", "n"), 64, {})
    sizes = [len(batch.users) for batch in part.batches(64, (checks.CSV_TEXT,) * 2, Faults())]
    assert max(sizes) <= 64
    assert sum(sizes) == (frame["n"] > 0).sum()
