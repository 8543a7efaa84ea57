"""The report, in a real browser where there is one."""

from __future__ import annotations

import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers.browser import visit
from helpers.stores import fitted_arrays

import pairsym_dask as ps
from pairsym_dask.report.summaries import extremes, histogram, often_seen, summarise_side
from pairsym_dask.store.model_store import ModelStore

HOSTILE = '<script>document.title="taken"</script> & "quoted"'


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A counts store with names that a page must not believe, held-out pairs and a fitted model."""
    place = tmp_path_factory.mktemp("report")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"user": rng.integers(0, 60, 900), "item": (40 * rng.random(900) ** 2).astype(int)})
    frame["item"] = frame["item"].map(lambda k: HOSTILE if k == 0 else f"item {k} with a name that is rather long")
    train, held_out = ps.leave_one_out(ps.ingest(frame, place / "counts.zarr"), place / "train.zarr")
    held_out.to_csv(place / "held.csv", index=False)
    ps.PairedSymbols(factors=3).fit(train, place / "model.zarr", sweeps=4, progress=False)
    return place


@pytest.fixture(scope="module")
def page(folder):
    words = ("report", "model.zarr", "-o", "report.html", "--held-out", "held.csv")
    command = [sys.executable, "-m", "pairsym_dask.cli", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return folder / "report.html"


def words_of(page: Path) -> str:
    return unescape(re.sub("<[^>]*>", " ", page.read_text(encoding="utf-8")))


def test_the_page_has_every_section_and_the_right_numbers(page, folder):
    words, model = words_of(page), ps.load(folder / "model.zarr")
    for heading in ("Data", "Settings", "Fit", "Popularity and taste", "pruning", "Uncertainty", "Evaluation"):
        assert heading in words
    assert f"{model.counts.nnz:,}" in words
    assert f"{model.history['elbo'].iloc[-1]:.10g}" in words
    assert "Most polarising" in words
    assert "not finished" not in words


def test_sample_recommendations_have_titles_and_intervals(folder):
    model = ps.load(folder / "model.zarr")
    titles = {label: f"The {k}th & <best>" for k, label in enumerate(model.counts.item_ids)}
    model.report(folder / "titled.html", titles=titles)
    words = words_of(folder / "titled.html")
    quiet = model.counts.user_ids[np.argsort(model.counts.marginal("users"), kind="stable")]
    quiet = quiet[int(0.1 * (len(quiet) - 1))]
    top = model.recommend(quiet, n=1).iloc[0]
    assert re.search(rf"\b{quiet}\s+has The", words)
    row = rf"{re.escape(titles[top['item']])}\s+{top['sigma']:.3f}\s+{top['low']:.3f} to {top['high']:.3f}"
    assert re.search(row, words)
    assert "item 1 with a name" not in words  # every item goes by its title
    assert " ± " in words


def test_the_page_needs_no_network_and_the_console_is_silent(page):
    seen = visit(page.as_uri(), "document.querySelectorAll('svg').length + ' ' + document.title")
    assert seen.value == "16 Report on model.zarr"  # and the hostile label has not changed the title
    assert seen.complaints == []
    assert seen.requests == [page.as_uri()]


@pytest.mark.parametrize("width", [360, 1300])
def test_nothing_is_wider_than_the_screen(page, width):
    seen = visit(page.as_uri(), "document.documentElement.scrollWidth <= innerWidth", width=width)
    assert seen.value is True


@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_on_light_and_on_dark_screens(page, dark):
    ask = "(s => [s.color, s.backgroundColor])(getComputedStyle(document.body))"
    text, ground = (
        sum(map(int, re.findall(r"\d+", colour))) / 3 for colour in visit(page.as_uri(), ask, dark=dark).value
    )
    assert (text > 200 and ground < 50) if dark else (text < 50 and ground > 200)


def test_labels_are_text_and_never_markup(page):
    assert "<script" not in page.read_text(encoding="utf-8")
    assert HOSTILE in words_of(page)


def test_an_unfinished_fit_has_a_report_that_says_so(folder, tmp_path):
    counts, place = ps.open_counts(folder / "train.zarr"), tmp_path / "unfinished.zarr"

    def stop(sweep, elbo, seconds):
        ps.load(place).report(tmp_path / "under_way.html")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ps.PairedSymbols(factors=3).fit(counts, place, sweeps=9, progress=False, callback=stop)
    assert "The fit is not finished: a fit on" in words_of(tmp_path / "under_way.html")
    # What a killed fit leaves behind.
    commits = ModelStore(place).commits()
    ModelStore(place).begin_generation(2, commits[-1].arrays)
    ps.load(place).report(tmp_path / "killed.html")
    assert "interrupted after this sweep" in words_of(tmp_path / "killed.html")
    ps.load(place, sweep=0).report(tmp_path / "start.html")
    assert "later sweeps" in words_of(tmp_path / "start.html")


def test_a_start_without_a_sweep_has_a_report(folder, tmp_path):
    model = ps.PairedSymbols(factors=2, biases=False).fit(folder / "train.zarr", tmp_path / "m.zarr", 0, progress=False)
    model.report(tmp_path / "start.html")
    assert "before any sweep" in words_of(tmp_path / "start.html")


@pytest.mark.slow
def test_counts_that_have_moved_are_a_sentence_and_can_be_named(folder, tmp_path):
    moved = tmp_path / "model.zarr"
    (folder / "model.zarr").rename(moved)
    command = [sys.executable, "-m", "pairsym_dask.cli", "report", str(moved), "-o", str(tmp_path / "r.html")]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 2
        assert "counts store of" in done.stderr
        assert "--counts" in done.stderr
        assert not (tmp_path / "r.html").exists()
        done = subprocess.run([*command, "--counts", str(folder / "train.zarr")], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    finally:
        moved.rename(folder / "model.zarr")


def test_a_report_goes_to_a_file_whose_folder_is_there(small_model, tmp_path):
    for wrong in (tmp_path, tmp_path / "nowhere" / "report.html"):
        with pytest.raises(ps.InputError, match="name of a file"):
            small_model.report(wrong)


def test_bins_hold_the_means_of_all_symbols_and_samples_come_from_every_bin(small, small_model):
    arrays = fitted_arrays(small_model)
    bins = histogram(small, "users")
    summary = summarise_side(small_model._fitted, small, "users", bins, points=40)
    c = small.marginal("users")
    sd = np.sqrt((1 / arrays["users/precision"].astype(float)).mean(1))
    for row in summary.bins.itertuples():
        inside = (c >= row.low) & (c < row.high)
        assert row.symbols == inside.sum()
        assert row.total == c[inside].sum()
        np.testing.assert_allclose(row.trait_sd, sd[inside].mean())
        assert inside[summary.sample["position"]].sum() == min(inside.sum(), -(-40 // len(bins)))
    np.testing.assert_array_equal(summary.sample["c"], c[summary.sample["position"]])
    selection = arrays["users/selection"]
    np.testing.assert_allclose(summary.sample["selected"], (selection / selection.sum())[summary.sample["position"]])


def test_the_extremes_are_those_of_the_whole_side(small, small_model):
    arrays, c = fitted_arrays(small_model), small.marginal("items")
    floor = often_seen(histogram(small, "items"))
    wanted = np.flatnonzero(c >= floor)
    norm = np.linalg.norm(arrays["items/mean"].astype(float), axis=1)[wanted]
    bias = arrays["items/bias"].astype(float)[wanted]
    score = (norm - norm.mean()) / norm.std() - (bias - bias.mean()) / bias.std()
    most, least = extremes(small_model._fitted, small, "items", floor, 5)
    np.testing.assert_array_equal(most["position"], wanted[np.argsort(-score)[:5]])
    np.testing.assert_array_equal(least["position"], wanted[np.argsort(score)[:5]])
    np.testing.assert_allclose(most["score"], -np.sort(-score)[:5])
