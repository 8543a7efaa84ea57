"""Times of events: weights that fade by a half-life, and splits into before and after."""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pytest
from helpers.command import run_here

import pairsym_dask as ps

DAY = pd.Timedelta("1D")


def events(rows=600, users=40, items=25, seed=0):
    """Events in no order, with repeated pairs and repeated times."""
    rng = np.random.default_rng(seed)
    when = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 200, rows), "D")
    return pd.DataFrame(
        {"user": rng.integers(0, users, rows), "item": rng.integers(0, items, rows), "time": when}
    ).assign(n=rng.integers(1, 4, rows))


def faded(frame, half_life, now=None, count=None):
    """Counts of pairs, every row weighed in plain numpy."""
    age = ((frame["time"].max() if now is None else pd.Timestamp(now)) - frame["time"]) / DAY
    weight = 2.0 ** -(age / half_life) * (1 if count is None else frame[count])
    return frame.assign(weight=weight).groupby(["user", "item"])["weight"].sum()


def stored(counts):
    matrix = counts.to_scipy().tocoo()
    index = pd.MultiIndex.from_arrays(
        [counts.user_ids[matrix.row], counts.item_ids[matrix.col]], names=["user", "item"]
    )
    return pd.Series(matrix.data, index, name="weight").sort_index()


@pytest.mark.parametrize("count", [None, "n"])
@pytest.mark.parametrize("now", [None, "2025-01-01"])
def test_an_event_counts_half_for_every_half_life_of_its_age(tmp_path, count, now, small_tasks):
    frame = events()
    counts = ps.ingest(frame, tmp_path / "c.zarr", count=count, time="time", half_life="30D", now=now)
    pd.testing.assert_series_equal(stored(counts), faded(frame, 30, now, count), rtol=1e-14)
    present = "2025-01-01T00:00:00" if now else "2024-07-18T00:00:00"
    assert f"(half-life 30 days 00:00:00 before {present})" in counts.record["source"]


def test_the_same_events_make_the_same_store_however_they_come(tmp_path, monkeypatch):
    frame = events().drop(columns="n")
    seconds = frame.assign(time=(frame["time"] - pd.Timestamp(0)) // pd.Timedelta("1s"))
    frame.sample(frac=1, random_state=1).to_csv(tmp_path / "text.csv", index=False)
    seconds.to_csv(tmp_path / "seconds.csv", index=False)
    frame.assign(time=frame["time"].dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo")).to_parquet(
        tmp_path / "z.parquet"
    )
    zoned = frame.assign(time=frame["time"].dt.strftime("%Y-%m-%dT01:00:00+01:00"))
    sources = {
        "frame": frame, "shuffled": frame.sample(frac=1, random_state=2), "text": tmp_path / "text.csv",
        "seconds": tmp_path / "seconds.csv", "parquet": tmp_path / "z.parquet", "polars": pl.from_pandas(frame),
        "dask": dd.from_pandas(frame, npartitions=3), "zoned": zoned, "dates": frame.assign(time=frame["time"].dt.date),
        "tuples": list(frame.itertuples(index=False, name=None)), "floats": seconds.astype({"time": float}),
    }  # fmt: skip
    found = {
        name: ps.ingest(source, tmp_path / f"{name}.zarr", time="time", half_life="7D").digest
        for name, source in sources.items()
    }
    assert len(set(found.values())) == 1, found


def test_the_oldest_events_keep_their_symbols(tmp_path):
    frame = pd.DataFrame({"user": ["old", "new"], "item": ["x", "y"], "time": ["1900-01-01", "2024-01-01"]})
    counts = ps.ingest(frame, tmp_path / "c.zarr", time="time", half_life="1h")
    assert counts.shape == (2, 2)
    assert counts.to_scipy().toarray().tolist() == [[0, 1], [2.0**-1000, 0]]
    assert ps.PairedSymbols(factors=2).fit(counts, tmp_path / "m.zarr", sweeps=2, progress=False).recommend("old").size
    with pytest.raises(ps.InputError, match="not whole numbers"):
        ps.PairedSymbols(factors=2, inference="gibbs").fit(counts, tmp_path / "g.zarr", sweeps=2, progress=False)


def test_rows_without_a_readable_time_are_listed_or_left_out(tmp_path):
    path = tmp_path / "e.csv"
    path.write_text("user,item,time\na,x,2024-01-01\nb,x,\nb,y,soon\nc,y,1700000000000\nd,y,2024-02-30\n")
    with pytest.raises(ps.InputError) as caught:
        ps.ingest(path, tmp_path / "c.zarr", time="time", half_life="1D")
    assert str(caught.value).startswith(
        f"4 of 5 rows cannot be counted: 3 with a time that cannot be read (first: 'soon' in line 4 of {path}), "
        f"1 without a time (first: line 3 of {path}); "
    )
    counts = ps.ingest(path, tmp_path / "c.zarr", time="time", half_life="1D", invalid="drop")
    assert counts.user_ids.tolist() == ["a"]
    path.write_text("user,item,time\nc,y,1700000000000\n")
    with pytest.raises(ps.InputError, match=r"so that they are seconds since 1970 \(milliseconds by 1000\)"):
        ps.ingest(path, tmp_path / "d.zarr", time="time", half_life="1D")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"half_life": "30D"}, "half_life needs the times of events"),
        ({"time": "time"}, "time is for half_life here"),
        ({"time": "time", "half_life": 30}, "half_life must be a length of time such as"),
        ({"time": "time", "half_life": "-1D"}, "half_life must be a length of time such as"),
        ({"time": "time", "half_life": "30"}, "half_life must be a length of time such as"),  # not 30 nanoseconds
        ({"time": "time", "half_life": "1D", "now": "2024-01-01"}, "is after the present that is given"),
        ({"time": "time", "half_life": "1D", "now": "then"}, "now must be a time such as"),
        ({"time": "user", "half_life": "1D"}, "must be different columns"),
        ({"time": "when", "half_life": "1D"}, "no column 'when'"),
    ],
)
def test_what_cannot_be_asked_for_is_one_sentence(tmp_path, options, words):
    with pytest.raises(ps.InputError, match=words):
        ps.ingest(events(), tmp_path / "c.zarr", **options)
    assert not (tmp_path / "c.zarr").exists()


def test_a_store_has_no_times(tmp_path):
    counts = ps.ingest(events()[["user", "item"]], tmp_path / "c.zarr")
    with pytest.raises(ps.InputError, match="holds pairs without their times"):
        ps.split_by_time(counts, tmp_path / "t.zarr", "2024-03-01")
    with pytest.raises(ps.InputError, match="entries of a matrix have no times"):
        ps.leave_last_out(counts.to_scipy(), tmp_path / "t.zarr")


@pytest.mark.parametrize("shape", [(40, 25), (12, 60)])
@pytest.mark.parametrize("repeats", [False, True])
@pytest.mark.parametrize("until", [None, "2024-06-01"])
def test_training_is_what_came_before_and_held_out_what_came_after(tmp_path, shape, repeats, until, small_tasks):
    frame, at = events(400, *shape, seed=3), pd.Timestamp("2024-05-01")
    train, held_out = ps.split_by_time(
        frame, tmp_path / "t.zarr", "2024-05-01", count="n", until=until, repeats=repeats, half_life="20D"
    )
    before = frame[frame["time"] < at]
    after = frame[(frame["time"] >= at) & (frame["time"] < pd.Timestamp(until or "2100-01-01"))]
    pd.testing.assert_series_equal(stored(train), faded(before, 20, at, "n"), rtol=1e-14)
    pairs = after[["user", "item"]].drop_duplicates()
    known = pairs["user"].isin(before["user"]) & pairs["item"].isin(before["item"])
    seen = pairs.merge(before[["user", "item"]].drop_duplicates(), how="left", indicator=True)["_merge"] == "both"
    wanted = pairs[known.to_numpy() & (repeats | ~seen.to_numpy())].sort_values(["user", "item"], ignore_index=True)
    pd.testing.assert_frame_equal(held_out, wanted)
    assert held_out.attrs == {"repeated": 0 if repeats else int(seen.sum()), "unknown": int((~known).sum())}


def test_unknown_symbols_are_kept_where_that_is_asked_for_and_evaluate_skips_them(tmp_path):
    path = tmp_path / "e.csv"
    path.write_text(
        "user,item,time\n1,x,2024-01-01\n2,x,2024-01-01\n2,y,2024-01-02\nnew,x,2024-02-01\n1,y,2024-02-01\n"
    )
    train, held_out = ps.split_by_time(path, tmp_path / "t.zarr", "2024-02-01")
    assert train.user_ids.tolist() == [1, 2]
    assert held_out.to_numpy().tolist() == [[1, "y"]]  # as the training store has them
    _, all_pairs = ps.split_by_time(path, tmp_path / "u.zarr", "2024-02-01", unknown="keep")
    assert all_pairs.to_numpy().tolist() == [["1", "y"], ["new", "x"]]
    model = ps.PairedSymbols(factors=2).fit(train, tmp_path / "m.zarr", sweeps=2, progress=False)
    assert ps.evaluate(model, held_out).overall["pairs"] == 1


@pytest.mark.parametrize("shape", [(40, 25), (12, 60)])
def test_the_last_pair_of_each_user_is_held_out_whole(tmp_path, shape, small_tasks):
    frame = events(300, *shape, seed=5)
    alone = pd.DataFrame({"user": [99, 99], "item": [1, 1], "time": frame["time"].max(), "n": 1})
    frame = pd.concat([frame, alone])
    frame["time"] += pd.to_timedelta(np.arange(len(frame)), "s")  # no two at the same time
    train, held_out = ps.leave_last_out(frame, tmp_path / "t.zarr", count="n")
    last = frame.sort_values("time").groupby("user").tail(1)
    several = frame.groupby("user")["item"].nunique() > 1
    wanted = last[last["user"].map(several)][["user", "item"]].sort_values("user", ignore_index=True)
    pd.testing.assert_frame_equal(held_out, wanted)
    rest = frame.merge(wanted, how="left", indicator=True).query("_merge == 'left_only'")
    assert stored(train).to_dict() == rest.groupby(["user", "item"])["n"].sum().to_dict()
    assert train.user_ids.tolist() == sorted(frame["user"].unique())
    assert train.item_ids.tolist() == sorted(frame["item"].unique())


def test_among_last_pairs_of_one_time_the_seed_decides(tmp_path):
    frame = pd.DataFrame(
        {"user": np.repeat(np.arange(300), 4), "item": np.tile(np.arange(4), 300), "time": "2024-01-01"}
    )
    first, again, second = (
        ps.leave_last_out(some, tmp_path / f"{k}.zarr", random_state=seed)[1]["item"].to_numpy()
        for k, (some, seed) in enumerate([(frame, 0), (frame[::-1], 0), (frame, 1)])
    )
    assert (first == again).all()
    assert (first != second).any()
    assert abs(np.bincount(first, minlength=4) - 75).max() < 4 * np.sqrt(300 * 3 / 16)


def test_nothing_before_or_after_is_one_sentence(tmp_path):
    frame = events()
    for at, words in (
        ("2030-01-01", "no pairs from 2030-01-01T00:00:00 on in the frame"),
        ("2020-01-01", "no pairs before 2020"),
        ("2020", r'at must be a whole date, such as "2020-01-01"'),
    ):
        with pytest.raises(ps.InputError, match=words):
            ps.split_by_time(frame, tmp_path / "t.zarr", at)
    with pytest.raises(ps.InputError, match="until must be after at"):
        ps.split_by_time(frame, tmp_path / "t.zarr", "2024-03-01", until="2024-02-01")
    with pytest.raises(ps.InputError, match="no user has two distinct pairs"):
        ps.leave_last_out(frame[:1], tmp_path / "t.zarr")
    assert not (tmp_path / "t.zarr").exists()


def test_the_command_line_weighs_and_splits_by_time(tmp_path):
    frame = events().drop(columns="n").rename(columns={"time": "at"})
    frame.to_csv(tmp_path / "e.csv", index=False, sep=";")
    done = run_here("ingest", "e.csv", "c.zarr", "--time", "at", "--half-life", "30D", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    same = ps.ingest(frame, tmp_path / "same.zarr", time="at", half_life="30D")
    assert ps.open_counts(tmp_path / "c.zarr").digest == same.digest
    done = run_here("split-by-time", "e.csv", "t.zarr", "h.csv", "--at", "2024-05-01", "--time", "at", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    train, held_out = ps.split_by_time(frame, tmp_path / "s.zarr", "2024-05-01", time="at")
    assert ps.open_counts(tmp_path / "t.zarr").digest == train.digest
    assert (
        f"{len(held_out):,} held-out pairs in h.csv (left out: {held_out.attrs['repeated']:,} repeated" in done.stdout
    )
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "h.csv"), held_out)
    done = run_here("split-by-time", "e.csv", "l.zarr", "l.parquet", "--last", "--time", "at", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(pd.read_parquet(tmp_path / "l.parquet")) == 40
    done = run_here("split-by-time", "e.csv", "x.zarr", "x.csv", "--time", "at", cwd=tmp_path)
    assert done.returncode == 2
    assert "give --at TIME" in done.stderr


def test_a_faded_store_is_brought_up_to_date_as_if_all_events_had_come_at_once(tmp_path):
    frame = events().drop(columns="n")
    early, late = frame[frame["time"] < "2024-06-01"], frame[frame["time"] >= "2024-06-01"]
    whole = ps.ingest(frame, tmp_path / "whole.zarr", time="time", half_life="30D")
    store = ps.ingest(early, tmp_path / "early.zarr", time="time", half_life="30D")
    both = ps.ingest([store, late], tmp_path / "both.zarr", time="time", half_life="30D")
    pd.testing.assert_series_equal(stored(both), stored(whole), rtol=1e-12)
    assert both.faded == whole.faded == ps.open_counts(both.path).faded
    assert ps.ingest(store, tmp_path / "copy.zarr").faded == store.faded
    assert ps.leave_one_out(store, tmp_path / "train.zarr")[0].faded == store.faded
    model = ps.PairedSymbols(factors=2).fit(store, tmp_path / "m.zarr", sweeps=1, progress=False)
    grown = model.update(late, tmp_path / "g.zarr", tmp_path / "gm.zarr", sweeps=1, time="time", progress=False)
    assert grown.counts.digest == both.digest
    rolled = ps.roll(tmp_path / "live", late, start=model, sweeps=1, time="time", progress=False)
    assert rolled.counts.digest == both.digest


def test_what_fades_and_what_does_not_are_not_mixed(tmp_path):
    frame = events().drop(columns="n")
    faded_store = ps.ingest(frame, tmp_path / "f.zarr", time="time", half_life="30D")
    plain = ps.ingest(frame, tmp_path / "p.zarr")
    models = [
        ps.PairedSymbols(factors=2).fit(store, tmp_path / f"{k}.zarr", sweeps=0, progress=False)
        for k, store in enumerate((faded_store, plain))
    ]
    with pytest.raises(ps.InputError, match="fade with the age of events; name the times of what is added"):
        ps.ingest([faded_store, frame], tmp_path / "x.zarr")
    with pytest.raises(ps.InputError, match="fade with a half-life of 30 days 00:00:00, not of 7 days 00:00:00"):
        ps.ingest([faded_store, frame], tmp_path / "x.zarr", time="time", half_life="7D")
    with pytest.raises(ps.InputError, match="holds pairs without their times"):
        ps.split_by_time(faded_store, tmp_path / "x.zarr", "2024-03-01")
    stores = tmp_path / "y.zarr", tmp_path / "z.zarr"
    with pytest.raises(ps.InputError, match="name that of new ones with time"):
        models[0].update(frame, *stores, progress=False)
    with pytest.raises(ps.InputError, match="do not fade: leave time and half_life out"):
        models[1].update(frame, *stores, time="time", progress=False)
