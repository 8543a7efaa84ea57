"""`tune`: halving, resumed fits, and what it hands back."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
import scipy.sparse

import pairsym_dask as ps
from pairsym_dask.evaluation.tune import MEASURES, MOST, POPULARITIES, SPACE, _combinations, _cost, _Search
from pairsym_dask.run.progress import Tally
from pairsym_dask.settings import POPULARITY, Settings

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
    frame = tuning.frame[tuning.frame["candidate"] < 5]
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


class Known:
    """Trials whose score is a sum over settings, so that the worth of each is known."""

    def __init__(self, gains):
        self.gains, self.runs = gains, []

    def run(self, number, settings, sweeps):
        self.runs.append((number, sweeps))
        score = 1e-9 * sweeps + sum(gain for (name, value), gain in self.gains.items() if settings[name] == value)
        return [{"candidate": number, **settings, "sweeps": sweeps, "popularity": 0.35, "score": score}]


def searched(gains, winner, fits=20.0):
    defaults = {name: getattr(Settings(), name) for name in winner}
    trial = Known(gains)
    search = _Search(trial, [defaults, winner], Tally(False, "tune", "fit", 4))
    search.halve([5, 10])
    return search, search.take_back(10, fits).set_index("setting")


def test_worth_of_a_setting_is_what_its_default_loses():
    winner = {"factors": 64, "censored_ratio": 20.0, "discount": 0.3, "tau_u": 3.0, "tau_v": 3.0}
    gains = {("factors", 64): 0.2, ("discount", 0.3): -0.01, ("tau_v", 3.0): 0.05}
    search, worth = searched(gains, winner)
    assert worth["worth"].to_dict() == pytest.approx(
        {"factors": 0.2, "tau_v": 0.05, "tau_u": 0.0, "discount": -0.01}, abs=1e-6
    )
    assert worth.loc["factors", ["value", "default"]].tolist() == [64, 128]
    # Better without the discount: that candidate is among the rows, and is the best one.
    assert max(row["score"] for row in search.rows) == pytest.approx(0.25)
    assert search.sweeps == 2 * 10 + 4 * 10


def test_worth_is_looked_at_only_as_far_as_the_fits_go():
    winner = {"factors": 64, "discount": 0.3, "temperature": 0.1}
    search, worth = searched({("factors", 64): 0.2}, winner, fits=2.0)
    assert worth["score"].isna().tolist() == [False, False, True]
    assert search.sweeps == 2 * 10 + 2 * 10


def test_what_was_judged_on_the_way_is_not_fitted_again():
    search, worth = searched({("factors", 64): 0.2}, {"factors": 64})  # at its default it is the first candidate
    assert worth.loc["factors", "worth"] == pytest.approx(0.2)
    assert sorted(search.trial.runs) == [(0, 5), (0, 10), (1, 5), (1, 10)]


def test_cost_is_counted_in_sweeps_and_never_above_twenty_fits(tuning):
    swept = tuning.frame.groupby("candidate")["sweeps"].max().sum()
    assert tuning.cost == swept / 4
    assert tuning.cost <= MOST
    assert [_cost(12, [10, 20, 40]), _cost(1, [7])] == [6, 1]


def test_settings_that_do_not_go_together_are_not_tried():
    _, worth = searched({("prior_growth", 0.0): 0.1}, {"selection": "constant", "prior_growth": 0.0})
    assert np.isnan(worth.loc["prior_growth", "worth"])  # it needs selection by counts
    assert worth.loc["selection", "worth"] == pytest.approx(0.0)


def test_progress_is_a_line_a_fit_where_there_is_no_terminal(counts, capsys):
    found = ps.tune(counts, space={"factors": (1, 2)}, candidates=2, sweeps=(1,), users=30, progress=True)
    lines = capsys.readouterr().err.splitlines()
    number = r"0\.\d{4}"
    assert len(lines) >= 2
    for k, line in enumerate(lines, 1):
        assert re.fullmatch(rf"tune: fit {k}/\d, candidate \d at 1 sweeps {number}, best {number}", line), line
    assert lines[-1].endswith(f"best {found.score:.4f}")


def test_nothing_is_left_behind(tuning, counts):
    assert [path.name for path in Path(counts.path).parent.iterdir()] == ["c.zarr"]


def test_defaults_are_always_tried_and_draws_are_seeded():
    first = _combinations(SPACE, 12, 0)
    assert len(first) == 12
    assert first[0] == {name: getattr(Settings(), name) for name in first[0]}
    assert {"tau_u", "tau_v", "tau_b", *SPACE} - {"tau"} == set(first[0])
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
    assert ("what each setting is worth" in str(tuning)) == (len(tuning.worth) > 0)
    assert len(tuning.plot().lines) == len(tuning.candidates)
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
        ({"candidates": 60, "sweeps": (9, 10)}, "cost 57.0 fits of 10 sweeps, and a search takes at most 20"),
        ({"users": 0}, "users must be"),
    ):
        with pytest.raises(ps.InputError, match=message):
            ps.tune(counts, **arguments)
