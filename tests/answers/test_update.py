"""More pairs of known and new symbols: what the new stores hold, where the fit starts, and that kills lose nothing."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import types

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from dask.base import tokenize
from helpers.command import run, run_here
from helpers.stores import fitted_arrays

import pairsym_dask as ps
from pairsym_dask.answers import update
from pairsym_dask.pairs.ingest import write_pairs
from pairsym_dask.pairs.parts import Columns
from pairsym_dask.store import cuts
from pairsym_dask.store.verify import verify


def draw(users, items, pairs, seed, text=False):
    """A frame of pairs with whole counts; labels with gaps, so that new ones fall between old ones."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"user": 3 * rng.integers(0, users, pairs), "item": 5 * rng.integers(0, items, pairs)})
    frame["count"] = rng.integers(1, 4, pairs)
    return frame.assign(user="u" + frame["user"].astype(str), item="i" + frame["item"].astype(str)) if text else frame


EARLY, LATE = draw(150, 60, 1500, seed=0), draw(190, 75, 500, seed=1)
LATE["user"] += LATE["user"] % 2  # some even labels between the old ones


SELECTION = "constant"


@pytest.fixture(scope="module")
def early(tmp_path_factory):
    folder = tmp_path_factory.mktemp("early")
    counts = ps.ingest(EARLY, folder / "counts.zarr", count="count")
    model = ps.PairedSymbols(factors=4, selection=SELECTION)
    return model.fit(counts, folder / "model.zarr", sweeps=6, progress=False)


@pytest.mark.parametrize("text", [False, True])
def test_rows_are_found_again_chunk_by_chunk(tmp_path, monkeypatch, text):
    monkeypatch.setattr(cuts, "LABELS", 7)
    frames = (draw(150, 60, 1500, 0, text), draw(190, 75, 500, 1, text))
    old = ps.ingest(frames[0], tmp_path / "old.zarr", count="count")
    new = ps.ingest([old, frames[1]], tmp_path / "new.zarr", count="count")
    for side in ("users", "items"):
        before = {label: row for row, label in enumerate(old.labels(side).tolist())}
        wanted = [before.get(label, -1) for label in new.labels(side).tolist()]
        assert update._rows_before(old, new, side).tolist() == wanted


def test_weights_by_counts_are_those_of_all_pairs_from_the_start(tmp_path):
    """The defaults: background weights follow the counts, and an update has more of them."""
    counts = ps.ingest(EARLY, tmp_path / "early.zarr", count="count")
    model = ps.PairedSymbols(factors=4).fit(counts, tmp_path / "early-model.zarr", sweeps=4, progress=False)
    new = updated(model, tmp_path, sweeps=4)
    scratch = ps.PairedSymbols(factors=4).fit(new.counts, tmp_path / "scratch.zarr", sweeps=0, progress=False)
    bound = new.history["elbo"].to_numpy()
    assert (np.diff(bound) > 0).all()
    assert bound[0] > scratch.history["elbo"][0]
    first = updated(model, tmp_path / "again", sweeps=0)
    for side in ("users", "items"):
        one, two = (fitted_arrays(fit)[f"{side}/background"] for fit in (first, scratch))
        assert one == pytest.approx(two, rel=1e-12)
        assert one.sum() == pytest.approx(1, rel=1e-12)


def updated(model, folder, source=LATE, **options):
    options = {"count": "count", "sweeps": 3, "progress": False} | options
    return model.update(source, folder / "counts.zarr", folder / "model.zarr", **options)


def contents(model):
    return {path: array.tobytes() for path, array in fitted_arrays(model).items()} | {
        "elbo": [value.hex() for value in model.history["elbo"]]
    }


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("turned", [False, True])
def test_a_store_among_the_sources_gives_the_store_of_all_pairs(tmp_path, text, turned):
    old, new = draw(150, 40, 900, 2, text), draw(170, 50, 400, 3, text)
    names = {"user": "item", "item": "user"} if turned else {"user": "user", "item": "item"}
    store = ps.ingest(old, tmp_path / "old.zarr", **names, count="count")
    both = ps.ingest([store, new], tmp_path / "both.zarr", **names, count="count")
    whole = ps.ingest(pd.concat([old, new]), tmp_path / "whole.zarr", **names, count="count")
    assert both.digest == whole.digest
    assert ps.ingest(store, tmp_path / "copy.zarr").digest == store.digest
    assert ps.ingest([store.path, new], tmp_path / "again.zarr", **names, count="count").digest == whole.digest


def test_symbols_of_a_store_that_have_no_pairs_stay(tmp_path):
    store = ps.ingest(scipy.sparse.csr_array(np.eye(9)[:, :5]), tmp_path / "old.zarr")  # users 5 to 8 have none
    both = ps.ingest([store, pd.DataFrame({"user": [20], "item": [2]})], tmp_path / "both.zarr")
    assert both.user_ids.tolist() == [*range(9), 20]
    assert both.nnz == 6


def test_fractions_and_counts_of_one_add_up(tmp_path):
    store = ps.ingest(
        pd.DataFrame({"user": [1, 2], "item": [1, 1], "count": [0.5, 2]}), tmp_path / "old.zarr", count="count"
    )
    both = ps.ingest([store, pd.DataFrame({"user": [1, 3], "item": [1, 1]})], tmp_path / "both.zarr")
    assert both.to_scipy().toarray().ravel().tolist() == [1.5, 2, 1]


def test_the_new_counts_are_all_pairs_and_the_old_stores_stay(tmp_path, early):
    before = contents(early)
    new = updated(early, tmp_path)
    assert new.counts.digest == ps.ingest(pd.concat([EARLY, LATE]), tmp_path / "all.zarr", count="count").digest
    assert new.path == str(tmp_path / "model.zarr")
    assert new.history["sweep"].tolist() == [0, 1, 2, 3]
    assert contents(ps.load(early.path)) == before == contents(early)


def test_known_symbols_start_from_their_rows_and_new_ones_as_the_average(tmp_path, early):
    new = updated(early, tmp_path, sweeps=0)
    old_rows, rows = fitted_arrays(early), fitted_arrays(new)
    for side, name in (("users", "user"), ("items", "item")):
        labels, known = new.counts.labels(side), np.isin(new.counts.labels(side), EARLY[name])
        assert labels[known].tolist() == early.counts.labels(side).tolist()
        assert 0 < (~known).sum() < known.sum()
        for array in ("mean", "precision", "bias", "bias_precision"):
            assert (rows[f"{side}/{array}"][known] == old_rows[f"{side}/{array}"]).all()
        old_share, share = old_rows[f"{side}/background"], rows[f"{side}/background"]
        average = old_share @ old_rows[f"{side}/mean"], old_share @ old_rows[f"{side}/bias"]
        assert rows[f"{side}/mean"][~known] == pytest.approx(np.tile(average[0], ((~known).sum(), 1)), rel=1e-5)
        assert rows[f"{side}/bias"][~known] == pytest.approx(average[1], rel=1e-5)
        assert share.sum() == pytest.approx(1, rel=1e-12)
        assert np.ptp(share[known] / old_share) < 1e-12
        assert share[~known] / (1 + new.counts.marginal(side)[~known]) == pytest.approx(
            share[~known].sum() / (1 + new.counts.marginal(side)[~known]).sum(), rel=1e-9
        )
    assert new._fitted.scalar("xi_star") == early._fitted.scalar("xi_star")


def test_the_bound_only_rises_and_is_ahead_of_a_fit_from_scratch(tmp_path, early):
    new = updated(early, tmp_path, sweeps=6)
    scratch = ps.PairedSymbols(factors=4, selection=SELECTION).fit(
        new.counts, tmp_path / "scratch.zarr", sweeps=6, progress=False
    )
    bound = new.history["elbo"].to_numpy()
    assert (np.diff(bound) >= -1e-6 * np.abs(bound[1:])).all()
    assert (bound[:4] > scratch.history["elbo"].to_numpy()[:4]).all()


@pytest.mark.slow
def test_an_update_reaches_the_bound_of_a_fit_from_scratch_sooner(tmp_path, real_data):
    frame = pd.read_parquet(real_data / "ml-100k-ratings.parquet", columns=["user", "item"])
    late = frame["user"].isin(frame["user"].unique()[::50]) | (np.random.default_rng(0).random(len(frame)) < 0.08)
    model = ps.PairedSymbols(factors=8, selection=SELECTION)
    model.fit(
        ps.ingest(frame[~late], tmp_path / "early.zarr"), tmp_path / "early-model.zarr", sweeps=12, progress=False
    )
    new = updated(model, tmp_path, frame[late], sweeps=6, count=None)
    scratch = ps.PairedSymbols(factors=8, selection=SELECTION).fit(
        new.counts, tmp_path / "scratch.zarr", sweeps=12, progress=False
    )
    assert new.history["elbo"].iloc[-1] > scratch.history["elbo"].iloc[-1]
    # Started from flat, wide posteriors, new users would lose all their censored pairs, and be ranked like noise.
    share = fitted_arrays(new)["users/background"] / (1 + new.counts.marginal("users"))
    known = new.counts.find("users", model.counts.user_ids)
    assert 0.5 < np.median(np.delete(share, known)) / np.median(share[known]) < 2


KILL = """
import os, signal, sys
import pandas as pd
import pairsym_dask as ps
from pairsym_dask.pairs.ingest import write_pairs
from pairsym_dask.pairs.parts import Columns
from pairsym_dask.sweep import fit

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

if sys.argv[4] == "start":
    fit.Fit.start = die
ps.load(sys.argv[1]).update(pd.read_parquet(sys.argv[2]), sys.argv[3] + "/counts.zarr", sys.argv[3] + "/model.zarr",
    count="count", sweeps=3, progress=False, callback=lambda sweep, *_: sweep == 2 and die())
"""


@pytest.mark.slow
@pytest.mark.parametrize("when", ["start", "sweep 2"])
def test_a_killed_update_ends_with_the_same_bytes(tmp_path, early, when):
    LATE.to_parquet(tmp_path / "late.parquet")
    words = [early.path, tmp_path / "late.parquet", tmp_path, when]
    done = subprocess.run([sys.executable, "-c", KILL, *map(str, words)], env=dict(os.environ), timeout=120)
    assert done.returncode == -signal.SIGKILL
    written = os.stat(tmp_path / "counts.zarr" / "counts.json").st_mtime_ns
    resumed = updated(early, tmp_path, pd.read_parquet(tmp_path / "late.parquet"))
    assert os.stat(tmp_path / "counts.zarr" / "counts.json").st_mtime_ns == written  # not written again
    (tmp_path / "whole").mkdir()
    assert contents(resumed) == contents(updated(early, tmp_path / "whole"))


def test_more_sweeps_go_on_by_update_or_fit(tmp_path, early):
    whole = contents(updated(early, tmp_path, sweeps=5))
    for folder in (tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
        updated(early, folder, sweeps=2)
    assert contents(updated(early, tmp_path / "one", sweeps=5)) == whole
    again = ps.load(tmp_path / "two" / "model.zarr")
    assert contents(again.fit(again.counts, again.path, sweeps=5, progress=False)) == whole
    assert verify(again.path).sound


@pytest.mark.cluster
def test_an_update_on_a_cluster_gives_the_same_bits(tmp_path, early, cluster):
    from distributed import Client

    (tmp_path / "here").mkdir()
    here = updated(early, tmp_path / "here", sweeps=1)
    with Client(cluster) as client:
        there = updated(early, tmp_path, sweeps=1, client=client)
    assert contents(here) == contents(there)


def test_an_update_in_double_precision(tmp_path, early):
    model = ps.load(early.path).set_params(dtype="float64")
    new = updated(model, tmp_path, sweeps=2)
    assert fitted_arrays(new)["users/mean"].dtype == np.float64
    assert np.diff(new.history["elbo"]).min() > 0


def test_labels_of_another_type_are_refused_and_nothing_is_left(tmp_path, early):
    text = LATE.assign(item=LATE["item"].astype(str))
    with pytest.raises(ps.InputError, match=r"column 'item' holds integers in .*counts.zarr and strings in the frame"):
        updated(early, tmp_path, text)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "late.csv").write_text("user,item,count\n1,2,1\n4,two,1\n")
    with pytest.raises(ps.InputError, match=r"items are integers elsewhere, but line 3 of .*late.csv has 'two'"):
        updated(early, tmp_path, tmp_path / "late.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["late.csv"]


def test_what_is_in_the_way_is_refused_and_stays(tmp_path, early):
    (tmp_path / "model.zarr").write_text("mine")
    with pytest.raises(ps.StoreError, match=r"model.zarr exists already and is not a sound model store"):
        updated(early, tmp_path)
    assert not (tmp_path / "counts.zarr").exists()
    (tmp_path / "model.zarr").unlink()
    ps.ingest(LATE, tmp_path / "counts.zarr", count="count")
    with pytest.raises(ps.StoreError, match=r"counts.zarr exists already and is not the store of .* these new pairs"):
        updated(early, tmp_path)
    assert not (tmp_path / "model.zarr").exists()
    with pytest.raises(ps.StoreError, match="did not start from sweep 6 of"):
        early.update(LATE, tmp_path / "more.zarr", early.path, count="count", progress=False)
    assert not (tmp_path / "more.zarr").exists()


def test_other_new_pairs_do_not_go_on_with_an_earlier_update(tmp_path, early):
    updated(early, tmp_path)
    with pytest.raises(ps.StoreError, match="with just these new pairs"):
        updated(early, tmp_path, LATE.iloc[:-1])


def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path, early):
    with pytest.raises(ps.InputError, match="rows of factors=4, so factors cannot become 5"):
        updated(ps.load(early.path).set_params(factors=5), tmp_path)
    with pytest.raises(ps.InputError, match="sweeps must be a whole number"):
        updated(early, tmp_path, sweeps=-1)
    with pytest.raises(ps.InputError, match="need a store each, not both"):
        early.update(LATE, tmp_path / "one.zarr", tmp_path / "one.zarr", count="count", progress=False)
    with pytest.raises(ps.InputError, match="new pairs cannot come as a matrix"):
        updated(early, tmp_path, scipy.sparse.csr_array(np.eye(3)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_command_line_updates_and_says_what_is_wrong(tmp_path, early):
    LATE.to_csv(tmp_path / "late.csv", index=False)
    words = ["late.csv", "--counts", "counts.zarr", "--model", "model.zarr", "--count", "count", "--sweeps", 2]
    done = run("update", early.path, *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "model.zarr: sweep 2, bound" in done.stdout
    (tmp_path / "whole").mkdir()
    assert contents(ps.load(tmp_path / "model.zarr")) == contents(updated(early, tmp_path / "whole", sweeps=2))
    assert "an update: started from sweep 6 of" in run("info", "model.zarr", cwd=tmp_path).stdout
    done = run("update", early.path, "missing.csv", "--counts", "c.zarr", "--model", "m.zarr", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.strip() == "pairsym: no such file: missing.csv"


def test_an_update_that_the_version_before_interrupted_goes_on(early, tmp_path, monkeypatch):
    """Version 0.1.0 wrote dask's token of its class `pairsym_dask.sources.Columns` into the grown store's record."""
    before = dataclasses.make_dataclass("Columns", ["user", "item", "count"], frozen=True)
    before.__module__ = "pairsym_dask.sources"
    module = types.ModuleType(before.__module__)
    module.Columns = before
    monkeypatch.setitem(sys.modules, before.__module__, module)
    remark = f" (update {tokenize(early.counts.digest, before('user', 'item', 'count'), [LATE])})"
    monkeypatch.delitem(sys.modules, before.__module__)
    columns, where = Columns("user", "item", "count"), {"client": None, "threads": None, "progress": False}
    write_pairs([early.counts, LATE], tmp_path / "counts.zarr", columns, {}, remark, memory=None, **where)
    written = (tmp_path / "counts.zarr" / "counts.json").stat().st_mtime_ns
    assert updated(early, tmp_path).history["sweep"].iloc[-1] == 3
    assert (tmp_path / "counts.zarr" / "counts.json").stat().st_mtime_ns == written
    with pytest.raises(ps.StoreError, match=r"is not the store of .* with just these new pairs"):
        updated(early, tmp_path, source=LATE.iloc[1:])


def test_messy_files_are_read_as_by_ingest(early, tmp_path):
    path = tmp_path / "late.csv"
    path.write_text("user;item;n\n3;5;1,5\n6;;2\n;5;1\n9;7000;2\n", encoding="utf-16")
    with pytest.raises(ps.InputError, match=r"2 of 4 rows cannot be counted: 1 without a user \(first: line 4 of"):
        updated(early, tmp_path, path, count="n", decimal=",")
    new = updated(early, tmp_path, path, count="n", decimal=",", invalid="drop")
    assert new.counts.total == early.counts.total + 3.5
    assert new.counts.item_ids[-1] == 7000
    written = (tmp_path / "counts.zarr" / "counts.json").stat().st_mtime_ns
    updated(early, tmp_path, path, count="n", decimal=",", invalid="drop")  # the same again finds its store
    assert (tmp_path / "counts.zarr" / "counts.json").stat().st_mtime_ns == written
    with pytest.raises(ps.StoreError, match="is not the store of"):
        updated(early, tmp_path, path, count="n", decimal=",")  # other rows were asked for
    words = ["late.csv", "--counts", "c.zarr", "--model", "m.zarr", "--count", "n", "--decimal", ",", "--sweeps", 1]
    done = run_here("update", early.path, *words, "--invalid", "drop", "--separator", "semicolon", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "4 rows read, 2 left out" in done.stderr
