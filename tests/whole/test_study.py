"""Every script of the study runs, on small generated pairs, and leaves its pictures and numbers."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pairsym_dask as ps

pytestmark = pytest.mark.study

WORKFLOWS = Path(__file__).resolve().parents[2] / "workflows"
FEW = ["--factors", "3", "--sweeps", "2"]
SCRIPTS = {
    "ranks": ["--sets", "blocks", "--epochs", "2", *FEW],
    "censored": ["--set", "blocks", *FEW],
    "sigma": ["--set", "blocks", *FEW],
    "factors": ["--sets", "blocks", "--factors", "2", "3", "--sweeps", "2"],
    "pruning": ["--set", "blocks", *FEW],
    "coauthors": ["--set", "friends", "--author", "3", "--iterations", "5", *FEW],
    "sweeps": ["--sets", "blocks", "--at", "1", "2", *FEW],
    "symmetric": ["--set", "friends", "--at", "1", "2", *FEW],
}


def run(name, options, folder, monkeypatch):
    """The numbers that a script writes."""
    monkeypatch.syspath_prepend(str(WORKFLOWS))
    places = ["--output", str(folder / "figures"), "--results", str(folder / "results")]
    monkeypatch.setattr("sys.argv", [f"study_{name}.py", *options, *places])
    importlib.import_module(f"study_{name}").main()
    (found,) = (folder / "results").glob(f"study-{name}*.json")
    return json.loads(found.read_text())


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_workflow_leaves_its_picture_and_its_numbers(name, tmp_path, monkeypatch):
    numbers = run(name, SCRIPTS[name], tmp_path, monkeypatch)
    assert numbers["command"].startswith(f"python workflows/study_{name}.py")
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {f"{name}.png", f"{name}.svg"}
    assert (tmp_path / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "figures" / f"{name}.svg").read_text()[:1000]


def test_both_solvers_gain_the_same(tmp_path, monkeypatch):
    found = run("solvers", ["--sets", "blocks", "--factors", "40", "--sweeps", "3"], tmp_path, monkeypatch)["blocks"]
    assert found["apart"] < 1e-2
    assert found["gradients"]["falls"] == found["cholesky"]["falls"] == 0
    assert found["gradients"]["bounds"] != found["cholesky"]["bounds"]


def test_every_lever_is_put_back_once(tmp_path, monkeypatch):
    found = run("levers", ["--sets", "blocks", *FEW], tmp_path, monkeypatch)["blocks"]
    assert found["defaults"]["R difference"] == 0
    assert len({one["R"] for one in found.values()}) == len(found)  # each lever moves ranks


def test_the_table_has_every_system_with_intervals(tmp_path, monkeypatch):
    options = ["--set", "blocks", "--splits", "2", "--epochs", "2", "--without-implicit", *FEW]
    rows = {row["system"]: row for row in run("table", options, tmp_path, monkeypatch)["rows"]}
    names = ["paired symbols", "popularity", "BPR-uniform", "BPR-pop", "RG-like", "RG-pop*like", "softmax MAP"]
    assert list(rows) == names
    assert rows["paired symbols"]["R_difference"] == [0, 0, 0]
    for row in rows.values():
        difference, low, high = row["ndcg_difference"]
        assert low <= difference <= high
        assert np.mean(row["R_by_split"]) == pytest.approx(row["R"], abs=1e-6)


def test_lists_are_compared_with_tuned_peers_over_splits(tmp_path, monkeypatch):
    options = ["--sets", "blocks", "--peers", "item-knn", "--splits", "2", "--trials", "2", "--users", "60"]
    found = run("lists", options, tmp_path, monkeypatch)["blocks"]
    assert list(found["chosen"]) == ["item-knn"]
    assert list(found["systems"])[-1] == "item-knn"
    for measures in found["systems"].values():
        for one in measures.values():
            assert one["low"] <= one["difference"] <= one["high"] or np.isnan(one["difference"])
    assert found["systems"]["defaults"]["R"]["difference"] == 0


def test_the_search_for_defaults_judges_every_exponent_of_every_candidate(tmp_path, monkeypatch):
    options = ["--sets", "blocks", "--at", "1", "2", "--first", "2", *FEW]
    rows = pd.DataFrame(run("defaults", options, tmp_path, monkeypatch)["rows"])
    assert len(rows) == 2 * 2 * rows["popularity"].nunique()
    assert rows["R"].between(0.5, 1).all()


def test_evaluation_at_scale_is_measured_in_a_process_of_its_own(tmp_path):
    options = ["--scale", "0.0003", "--sweeps", "1", "--results", str(tmp_path)]
    subprocess.run([sys.executable, str(WORKFLOWS / "study_scale.py"), *options], check=True, capture_output=True)
    found = json.loads((tmp_path / "study-scale.json").read_text())
    assert 0 < found["evaluate"]["users"] <= found["set"]["users"]
    assert 0 < found["evaluate"]["idle_interpreter_mib"] < found["evaluate"]["peak_mib"]


def test_epinions_pairs_come_out_of_the_archive(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(WORKFLOWS))
    head = "user\titems\trelevance\ncontinuous\tcontinuous\tcontinuous\nrow=1\tcol=1\tclass\n"
    for name, rows in (("epinions_train.tab", "7\t1\t1\n"), ("epinions_test.tab", "3\t0\t1\n3\t2\t1\n")):
        (tmp_path / name).write_text(head + rows)
    with tarfile.open(tmp_path / "package.tar.gz", "w:gz") as archive:
        for name in ("epinions_train.tab", "epinions_test.tab"):
            archive.add(tmp_path / name, f"package/datasets/{name}")
    importlib.import_module("fetch_epinions").main(tmp_path / "package.tar.gz", tmp_path / "epinions.parquet")
    pairs = pd.read_parquet(tmp_path / "epinions.parquet")
    assert pairs.to_numpy().tolist() == [[3, 0], [3, 2], [7, 1]]


def test_symmetric_counts_have_a_symmetric_solution_that_nothing_forces(tmp_path, monkeypatch):
    """One label space, no biases, the paper's setting: energies m_i.m_j and m_j.m_i come together."""
    monkeypatch.syspath_prepend(str(WORKFLOWS))
    asymmetry, pairs = importlib.import_module("study_symmetric").asymmetry, importlib.import_module("study")
    counts = ps.ingest(pairs.friend_pairs(), tmp_path / "friends.zarr", count="count")
    assert counts.user_ids.tolist() == counts.item_ids.tolist()
    model = ps.PairedSymbols(factors=5, censored_ratio=1, tau_u=1, tau_v=1, biases=False, selection="bayes")
    early = asymmetry(model.fit(counts, tmp_path / "model.zarr", sweeps=3, progress=False))
    late = asymmetry(model.fit(counts, tmp_path / "model.zarr", sweeps=40, progress=False))
    state = model.to_xarray()
    assert (
        np.abs(state.user_mean.to_numpy() @ state.item_mean.to_numpy().T).max() > 0.5
    )  # a solution that says something
    assert late < 0.01 < early
