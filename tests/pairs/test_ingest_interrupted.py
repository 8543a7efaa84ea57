"""An ingest that was interrupted or killed is no store, and runs again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import pytest
from helpers.pairs import add_up, check, make_frame

import pairsym_dask as ps
from pairsym_dask.pairs import writing


@pytest.mark.parametrize("step", ["parse-pairs", "merge-user-labels", "deal-pairs", "group-", "write-tile-by-user"])
def test_interrupted_ingest_is_no_store_and_runs_again(tmp_path, small_tasks, monkeypatch, step):
    frame = make_frame()
    wanted = ps.ingest(frame, tmp_path / "whole.zarr", count="n").digest
    run = writing.Stages.run

    def interrupt(self, name, function, tasks):
        results = run(self, name, function, tasks)
        if name.startswith(step):
            raise KeyboardInterrupt
        return results

    with monkeypatch.context() as patch:
        patch.setattr(writing.Stages, "run", interrupt)
        with pytest.raises(KeyboardInterrupt):
            ps.ingest(frame, tmp_path / "c.zarr", count="n")
    with pytest.raises(ps.StoreError, match="not complete"):
        ps.open_counts(tmp_path / "c.zarr")
    assert ps.ingest(frame, tmp_path / "c.zarr", count="n").digest == wanted
    assert not list((tmp_path / "c.zarr").glob("scratch*"))


@pytest.mark.slow
def test_killed_ingest_is_no_store_and_runs_again(tmp_path):
    make_frame().to_parquet(tmp_path / "a.parquet")
    script = f"""
        import os, signal
        import pairsym_dask as ps
        from pairsym_dask.pairs import assemble, writing

        write, writing.ROWS = assemble.write_tile, 64

        def write_and_die(storage, layout, side, block, group, tile):
            if side == "items":
                os.kill(os.getpid(), signal.SIGKILL)
            return write(storage, layout, side, block, group, tile)

        assemble.write_tile = write_and_die
        ps.ingest({str(tmp_path / "a.parquet")!r}, {str(tmp_path / "c.zarr")!r}, count="n")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], env=os.environ, check=False)
    assert done.returncode == -signal.SIGKILL
    with pytest.raises(ps.StoreError, match="not complete"):
        ps.open_counts(tmp_path / "c.zarr")
    check(ps.ingest(tmp_path / "a.parquet", tmp_path / "c.zarr", count="n"), add_up(make_frame()))
