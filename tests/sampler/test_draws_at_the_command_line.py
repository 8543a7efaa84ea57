"""A chain from the command line: fitted, gone on with, described and asked."""

from __future__ import annotations

from helpers.command import run_here

import pairsym_dask as ps


def test_a_chain_is_fitted_described_and_asked(tmp_path):
    rows = [f"user{k % 23},item{(k * k + k // 23) % 31}" for k in range(400)]
    (tmp_path / "plays.csv").write_text("\n".join(["user,item", *rows]) + "\n")
    assert run_here("ingest", "plays.csv", "plays.zarr", cwd=tmp_path).returncode == 0
    assert run_here("fit", "plays.zarr", "start.zarr", "--factors", 2, "--sweeps", 3, cwd=tmp_path).returncode == 0
    words = ("fit", "plays.zarr", "chain.zarr", "--factors", 2, "--inference", "gibbs", "--start", "start.zarr")
    done = run_here(*words, "--sweeps", 6, "--burn", 2, "--thin", 2, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "sweep 6" in done.stdout
    assert "2 draws" in done.stdout
    assert ps.load(tmp_path / "chain.zarr").draws["sweep"].tolist() == [4, 6]
    done = run_here("info", "chain.zarr", cwd=tmp_path)
    assert "log p(i, j)" in done.stdout
    assert "2 draws" in done.stdout
    assert run_here("verify", "chain.zarr", cwd=tmp_path).returncode == 0
    done = run_here("recommend", "chain.zarr", "user1", "-n", 3, cwd=tmp_path)
    assert done.stdout.split()[:8] == ["user", "item", "rank", "probability", "sigma", "sd", "low", "high"]
    done = run_here("fit", "plays.zarr", "other.zarr", "--inference", "gibbs", "--sweeps", 4, "--burn", 4, cwd=tmp_path)
    assert done.returncode != 0
    assert "burn must be below sweeps" in done.stderr
