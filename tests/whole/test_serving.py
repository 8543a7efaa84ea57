"""Daily life of a served model: packs, readers that move on, dated versions, nothing fed twice."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from helpers.command import run_here

import pairsym_dask as ps
from pairsym_dask.store.records import seal
from pairsym_dask.store.verify import verify

DAYS = [pd.DataFrame({"user": [1, 2, 900 + k], "item": [3, 4 + k, 5]}) for k in range(4)]


def test_a_pack_answers_the_same_wherever_it_is_carried(small_model, tmp_path):
    small_model.pack(tmp_path / "pack")
    (tmp_path / "pack").rename(tmp_path / "elsewhere")
    served = ps.load(tmp_path / "elsewhere")
    pd.testing.assert_frame_equal(served.recommend([3, 5], n=4), small_model.recommend([3, 5], n=4))
    assert served.counts.path == str(tmp_path / "elsewhere" / "counts.zarr")
    assert str(served.explain(3, 4)) == str(small_model.explain(3, 4))
    pd.testing.assert_frame_equal(
        served.recommend(served.fold_in([1, 2]), n=3), small_model.recommend(small_model.fold_in([1, 2]), n=3)
    )
    assert verify(tmp_path / "elsewhere" / "counts.zarr").sound
    assert verify(tmp_path / "elsewhere" / "model.zarr").sound
    assert not (tmp_path / "elsewhere" / "counts.zarr" / "by_item").exists()
    with pytest.raises(ps.StoreError, match="packed for serving, without its pairs by item"):
        ps.PairedSymbols(factors=2).fit(served.counts, tmp_path / "m.zarr", progress=False)
    with pytest.raises(ps.StoreError, match="exists already"):
        small_model.pack(tmp_path / "elsewhere")


@pytest.mark.parametrize("field", [{"kept": 7}, {"faded": 7}, {"faded": [1, "2"]}])
def test_a_forged_record_of_a_pack_is_refused(small_model, tmp_path, field):
    small_model.pack(tmp_path / "pack", seen=False)
    record = tmp_path / "pack" / "counts.zarr" / "counts.json"
    record.write_bytes(seal({**json.loads(record.read_text()), **field}))
    with pytest.raises(ps.DamagedStoreError, match="is not a sound record: kept or faded cannot be"):
        ps.open_counts(record.parent)


def test_a_pack_without_pairs_answers_with_seen_items(small_model, tmp_path):
    done = run_here("pack", small_model.path, "bare", "--without-seen", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    served = ps.load(tmp_path / "bare")
    assert not (tmp_path / "bare" / "counts.zarr" / "by_user").exists()
    pd.testing.assert_frame_equal(
        served.recommend(3, n=4, exclude_seen=False), small_model.recommend(3, n=4, exclude_seen=False)
    )
    with pytest.raises(ps.StoreError, match="exclude_seen=False"):
        served.recommend(3)
    assert verify(tmp_path / "bare" / "counts.zarr").sound


@pytest.mark.slow
def test_a_chain_is_packed_with_its_draws(small, tmp_path):
    model = ps.PairedSymbols(factors=2, inference="gibbs")
    model.fit(small, tmp_path / "chain.zarr", sweeps=6, burn=2, thin=2, progress=False)
    model.pack(tmp_path / "pack")
    pd.testing.assert_frame_equal(ps.load(tmp_path / "pack").recommend(3, n=4), model.recommend(3, n=4))


def test_a_reader_moves_to_the_newest_sweep_and_the_old_one_goes_on_answering(small, tmp_path):
    settings = ps.PairedSymbols(factors=2)
    settings.fit(small, tmp_path / "m.zarr", sweeps=2, progress=False)
    reader = ps.load(tmp_path / "m.zarr")
    before = reader.recommend(3)
    assert reader.newest() is reader
    settings.fit(small, tmp_path / "m.zarr", sweeps=3, progress=False)
    newer = reader.newest()
    assert newer.history["sweep"].iloc[-1] == 3
    assert newer.counts is reader.counts  # labels are not read again
    assert newer.newest() is newer
    pd.testing.assert_frame_equal(reader.recommend(3), before)


@pytest.fixture(scope="module")
def rolled(small_model, tmp_path_factory):
    """Three days of updates under one name."""
    folder = tmp_path_factory.mktemp("rolled") / "plays"
    for day, frame in enumerate(DAYS[:3]):
        ps.roll(folder, frame, start=small_model if day == 0 else None, sweeps=1, progress=False)
    return folder


def test_every_update_is_a_dated_version_and_the_name_opens_the_newest(rolled, small_model):
    versions = sorted(path.name for path in rolled.iterdir())
    assert len(versions) == 3
    model = ps.load(rolled)
    assert model.path == str(rolled / versions[-1] / "model.zarr")
    assert model.counts.total == small_model.counts.total + 9
    assert model.newest() is model
    assert {900, 901, 902} <= set(model.counts.user_ids.tolist())
    done = run_here("info", rolled, cwd=rolled)
    assert f"{rolled}: 3 versions, 3 files and frames fed\nmodel store {model.path}" in done.stdout
    done = run_here("verify", rolled, cwd=rolled)
    assert done.returncode == 0
    assert f"{rolled / versions[-1]}: sound" in done.stdout


def test_a_reader_moves_to_the_newest_version(small_model, tmp_path):
    ps.roll(tmp_path / "plays", DAYS[0], start=small_model, sweeps=1, progress=False)
    reader = ps.load(tmp_path / "plays")
    ps.roll(tmp_path / "plays", DAYS[1], sweeps=1, progress=False)
    assert reader.newest().path == ps.load(tmp_path / "plays").path != reader.path


def test_nothing_is_fed_twice_by_accident(rolled, tmp_path):
    before = sorted(rolled.iterdir())
    with pytest.raises(ps.InputError, match=r"a DataFrame was fed on 20.* as a DataFrame: its pairs would count twice"):
        ps.roll(rolled, DAYS[1], sweeps=1, progress=False)
    assert ps.roll(rolled, DAYS[1], sweeps=1, repeated="skip", progress=False).path == ps.load(rolled).path
    with pytest.raises(ps.InputError, match="has versions already; start is for the first"):
        ps.roll(rolled, DAYS[3], start=ps.load(rolled), progress=False)
    with pytest.raises(ps.InputError, match="holds no version yet; give the fitted model to start from"):
        ps.roll(tmp_path / "new", DAYS[3], progress=False)
    assert sorted(rolled.iterdir()) == before


def test_refused_pairs_leave_no_version_begun(rolled):
    before = sorted(rolled.iterdir())
    with pytest.raises(ps.InputError, match="1 without a user"):
        ps.roll(rolled, pd.DataFrame({"user": [None], "item": [3]}).astype({"user": "Int64"}), progress=False)
    assert sorted(rolled.iterdir()) == before


def test_files_are_known_by_their_content_and_old_versions_go(small_model, tmp_path):
    for day, frame in enumerate(DAYS):
        frame.to_csv(tmp_path / f"day{day}.csv", index=False)
    words = ["--sweeps", 1, "--repeated", "skip", "--keep-last", 2]
    first = run_here("update", "plays", "day0.csv", "--start", small_model.path, *words, cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    (tmp_path / "plays" / "notes.txt").write_text("mine")
    for day in (1, 2, 3):
        (tmp_path / "copy.csv").write_bytes((tmp_path / f"day{day - 1}.csv").read_bytes())
        done = run_here("update", "plays", "copy.csv", f"day{day}.csv", *words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    versions = sorted(path.name for path in (tmp_path / "plays").iterdir() if path.is_dir())
    assert len(versions) == 2
    assert (tmp_path / "plays" / "notes.txt").read_text() == "mine"
    assert ps.load(tmp_path / "plays").counts.total == small_model.counts.total + 12  # each day once
    done = run_here("update", "plays", "day2.csv", "--sweeps", 1, cwd=tmp_path)
    assert done.returncode == 2
    assert "day2.csv was fed on" in done.stderr
    assert "--repeated skip" in done.stderr
    assert run_here("recommend", "plays", 3, "-n", 2, cwd=tmp_path).returncode == 0


def test_an_interrupted_version_is_not_seen_and_is_finished_by_the_same_call(small_model, tmp_path):
    def stop(sweep, elbo, seconds):
        if sweep == 1:
            raise KeyboardInterrupt

    ps.roll(tmp_path / "plays", DAYS[0], start=small_model, sweeps=1, progress=False)
    with pytest.raises(KeyboardInterrupt):
        ps.roll(tmp_path / "plays", DAYS[1], sweeps=3, progress=False, callback=stop)
    assert len(list((tmp_path / "plays").iterdir())) == 2
    assert 901 not in ps.load(tmp_path / "plays").counts.user_ids
    with pytest.raises(ps.StoreError, match=r"another update of .* is under way or was interrupted"):
        ps.roll(tmp_path / "plays", DAYS[2], sweeps=3, progress=False)
    model = ps.roll(tmp_path / "plays", DAYS[1], sweeps=3, progress=False)
    assert len(list((tmp_path / "plays").iterdir())) == 2
    assert model.history["sweep"].tolist() == [0, 1, 2, 3]
