"""`tune`: halving, resumed fits, and what it hands back."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
import scipy.sparse

import pairsym_dask as ps
from pairsym_dask.evaluation.tune import MEASURES, POPULARITIES, SPACE, _combinations
from pairsym_dask.settings import POPULARITY

mpl.use("Agg")
SMALL = {"factors": (1, 2, 3), "tau": (0.1, 1.0)}


@pytest.fixture(scope="module")
def counts(tmp_path_factory):
    """Two kinds of users, each with its own half of the items."""
    rng = np.random.default_rng(0)
    matrix = rng.random((120, 30)) < 0.05
    matrix[:60, :15] |= rng.random((60, 15)) < 0.4
    matrix[60:, 15:] |= rng.random((60, 15)) < 0.4
    return ps.ingest(scipy.sparse.csr_matrix(matrix), tmp_path_factory.mktemp("tune") / "c.zarr")


@pytest.fixture(scope="module")
def tuning(counts):
    return ps.tune(counts, space=SMALL, candidates=5, sweeps=(1, 2, 4), random_state=1)


def test_better_half_goes_on(tuning):
    frame = tuning.frame
    sizes = frame.groupby("sweeps")["candidate"].nunique()
    assert sizes.to_dict() == {1: 5, 2: 3, 4: 2}
    assert len(frame) == len(POPULARITIES) * 10
    for before, after in ((1, 2), (2, 4)):
        best = frame[frame["sweeps"] == before].groupby("candidate")["score"].max()
        survivors = frame[frame["sweeps"] == after]["candidate"].unique()
        assert 0 in survivors  # the defaults stay
        assert best[survivors].drop(0).min() >= best.drop(survivors).max()


def test_best_is_the_best_row_and_ready_for_a_model(tuning, counts, tmp_path):
    frame = tuning.frame
    assert tuning.score == frame["score"].max()
    row = frame[(frame["score"] == tuning.score) & (frame["sweeps"] == tuning.sweeps)]
    row = row[row["popularity"] == tuning.popularity].iloc[0]
    assert all(row[name] == value for name, value in tuning.best.items())
    assert set(tuning.best) == {"factors", "tau_u", "tau_v", "tau_b"}
    # What it found can be had again: the same split, the same fit.
    train, held_out = ps.leave_one_out(counts, tmp_path / "t.zarr", 1)
    model = ps.PairedSymbols(**tuning.best, random_state=1)
    model.fit(train, tmp_path / "m.zarr", sweeps=tuning.sweeps, progress=False)
    result = ps.evaluate(model, held_out, tuning.popularity)
    for name in MEASURES:
        assert result.overall[name] == pytest.approx(row[name], rel=1e-6)


def test_nothing_is_left_behind(tuning, counts):
    assert [path.name for path in Path(counts.path).parent.iterdir()] == ["c.zarr"]


def test_defaults_are_always_tried_and_draws_are_seeded():
    first = _combinations(SPACE, 12, 0)
    assert len(first) == 12
    assert first[0] == {"factors": 20, "censored_ratio": 5.0, "tau_u": 0.1, "tau_v": 0.1, "tau_b": 0.1}
    assert len({tuple(one.values()) for one in first}) == 12
    assert first == _combinations(SPACE, 12, 0)
    assert first != _combinations(SPACE, 12, 1)


@pytest.mark.parametrize(
    ("metric", "column"), [("rank", "R"), ("log_likelihood", "log_likelihood"), ("ndcg@3", "ndcg")]
)
def test_metric_decides(counts, metric, column):
    found = ps.tune(counts, metric=metric, space={"factors": (2,)}, candidates=1, sweeps=(1,), users=50)
    assert (found.frame["score"] == found.frame[column]).all()
    if metric == "log_likelihood":
        assert found.popularity == POPULARITY  # which the log-likelihood does not depend on


def test_tuning_prints_and_plots(tuning):
    assert "best ndcg@10" in str(tuning)
    assert "<table" in tuning._repr_html_()
    assert len(tuning.plot().lines) == 5
    mpl.pyplot.close("all")


def test_bad_input_is_one_clear_sentence(counts):
    for arguments, message in (
        ({"metric": "auc"}, "metric must be"),
        ({"space": {"layers": (1,)}}, "no setting 'layers'"),
        ({"space": {"factors": 3}}, "a list of values for factors"),
        ({"space": {"factors": (0,)}}, "factors must be a whole number, at least 1"),
        ({"space": {"tau": (1,), "tau_u": (1,)}}, "stands for all three"),
        ({"space": {}}, "nothing to choose"),
        ({"sweeps": (5, 5)}, "whole numbers that grow"),
        ({"sweeps": ()}, "whole numbers that grow"),
        ({"candidates": 0}, "candidates must be"),
        ({"users": 0}, "users must be"),
    ):
        with pytest.raises(ps.InputError, match=message):
            ps.tune(counts, **arguments)
