"""`pairsym plan`: what a fit will take is what it takes."""

from __future__ import annotations

import os
import re

import pytest
from dask.utils import parse_bytes
from helpers.command import run_here

import pairsym_dask as ps
from pairsym_dask.report.sizes import plan


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sizes")
    counts = ps.simulate(folder / "counts.zarr", users=2_000, items=300, pairs=40_000, factors=2)
    ps.PairedSymbols(factors=8).fit(counts, folder / "model.zarr", sweeps=2, progress=False)
    return folder


def shape_of(counts):
    return dict(zip(("users", "items", "pairs"), (*counts.shape, counts.nnz), strict=True))


def size(path):
    return sum(os.path.getsize(os.path.join(top, name)) for top, _, names in os.walk(path) for name in names)


def test_a_shape_is_planned_as_a_store_of_that_shape(folder):
    counts = ps.open_counts(folder / "counts.zarr")
    by_store = str(plan(counts.path, factors=8, selection="constant", threads=2))
    by_shape = str(plan(**shape_of(counts), factors=8, selection="constant", threads=2))
    assert "2,000 users x 300 items" in by_store
    # Tiles of a store are not equally full, so that a task may hold more than of an even spread.
    memory = r"memory: .*"
    assert re.sub(memory, "", by_store) == re.sub(memory, "", by_shape)


def test_bytes_on_disk_are_those_that_were_said(folder):
    counts = ps.open_counts(folder / "counts.zarr")
    words = str(plan(**shape_of(counts), factors=8))
    said = {name: parse_bytes(found) for name, found in re.findall(r"(about|a sweep) ([\d.]+ \w+)", words)}
    (sweep,) = (folder / "model.zarr").glob("generation-*2-*")
    assert said["a sweep"] <= size(sweep) < 1.2 * said["a sweep"]  # and the descriptions of its arrays
    labels = 8 * 2 * sum(counts.shape)
    assert size(folder / "counts.zarr") < said["about"] + labels + 2**16


def test_a_budget_that_is_said_to_be_enough_is_enough(folder):
    where = shape_of(ps.open_counts(folder / "counts.zarr"))
    words = str(plan(**where, factors=8, threads=2))
    least = parse_bytes(re.search(r"memory: at least ([\d.]+ \w+)", words)[1])
    assert "1 tasks at a time" in str(plan(**where, factors=8, memory=1.01 * least, threads=1))
    assert "too small: one task needs" in str(plan(**where, factors=8, memory=0.9 * least, threads=1))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--users", "5"), "give a counts store, or users, items and pairs: items is missing"),
        (("--users", "2", "--items", "2", "--pairs", "9"), "have at most 4 distinct pairs, not 9"),
        (("--users", "0", "--items", "2", "--pairs", "9"), "users must be at least 1, not 0"),
        (("counts.zarr", "--users", "5"), "give a counts store, or users, items and pairs, not both"),
        (("counts.zarr", "--inference", "gibbs"), "plans are of variational fits"),
        (("nothing.zarr",), "there is no counts store at"),
    ],
)
def test_plans_that_cannot_be_are_one_sentence(folder, words, message):
    done = run_here("plan", *words, cwd=folder)
    assert done.returncode == 2
    assert message in done.stderr


def test_the_command_tells_disk_memory_and_time(folder):
    done = run_here("plan", "--users", "6.2e6", "--items", "12e3", "--pairs", "55e6", "--memory", "4GiB", cwd=folder)
    assert done.returncode == 0, done.stderr
    lines = [line.split()[0] for line in done.stdout.splitlines()]
    assert lines == ["6,200,000", "disk:", "memory:", "time:", "a", "a"]


def test_a_cluster_is_planned_with_what_limits_it(folder):
    words = ("--users", "1e9", "--items", "1e7", "--pairs", "1e11", "--factors", "64", "--memory", "16GiB")
    done = run_here("plan", *words, "--workers", "256", "--deadline", "90D", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert re.search(
        r"on 256 workers of 1 threads \(arithmetic .*, scheduler .*, network .*, store .*; limited by", done.stdout
    )
    assert "travel between workers and the driver" in done.stdout
    assert re.search(r"deadline: \d+ workers of 1 threads do 20 sweeps in", done.stdout)
    slow = plan(users=1e9, items=1e7, pairs=1e11, factors=64, workers=256, memory="16GiB", rates={"task": 10.0})
    assert slow.sweep.limit == "scheduler"
    assert "limited by dask's scheduler" in str(slow)


def test_more_workers_take_less_arithmetic_and_as_many_objects(folder):
    one, many = (plan(users=1e7, items=1e5, pairs=2.5e8, factors=20, workers=n, memory="8GiB").sweep for n in (4, 64))
    assert many.arithmetic < one.arithmetic / 4
    assert one.objects == many.objects


def test_a_machine_is_measured_by_a_small_fit(folder):
    found = plan(folder / "counts.zarr", factors=8, measured=True, rates={"network": 5e8})
    assert found.rates.speed > 0
    assert found.rates.network == 5e8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rates": {"wind": 1.0}}, "no rate 'wind'; there are: call, commit, network"),
        ({"rates": {"task": 0.0}}, "the rate task must be above 0, not 0.0"),
        ({"workers": 0}, "workers must be at least 1, not 0"),
        ({"deadline": "soon"}, "deadline must be a length of time"),
    ],
)
def test_rates_and_deadlines_that_cannot_be_are_one_sentence(folder, options, message):
    with pytest.raises(ps.InputError, match=message):
        plan(folder / "counts.zarr", factors=8, **options)
