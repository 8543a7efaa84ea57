"""Calibration: shares of held-out pairs against p(j | i), conformal lists, and truths in their posteriors."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers.command import run_here
from scipy import stats

import pairsym_dask as ps
from pairsym_dask.errors import InputError
from pairsym_dask.evaluation.reliability import reliability
from pairsym_dask.evaluation.truths import Places, find_places
from pairsym_dask.settings import Settings


class Told:
    """A model of 400 users whose p(j | i) is what it says, or bent by an exponent."""

    def __init__(self, counts: ps.Counts, exponent: float = 1.0) -> None:
        self.counts, self.exponent = counts, exponent
        self._answering = self
        rng = np.random.default_rng(0)
        self.true = rng.dirichlet(np.full(counts.shape[1], 0.3), counts.shape[0]) + 1e-6

    def blocks(self, n: int) -> list[slice]:
        return [slice(k, min(k + 70, n)) for k in range(0, n, 70)]

    def users(self, positions: np.ndarray) -> np.ndarray:
        return positions

    def conditional(self, users: np.ndarray) -> np.ndarray:
        p = self.true[users] ** self.exponent
        return p / p.sum(1, keepdims=True)

    def held_out(self) -> pd.DataFrame:
        """An unseen item of every user, drawn from the truth."""
        rng, rows = np.random.default_rng(1), []
        seen = self.counts.to_scipy().toarray() > 0
        for user in range(self.counts.shape[0]):
            p = self.true[user] * ~seen[user]
            rows.append((self.counts.user_ids[user], self.counts.item_ids[rng.choice(p.size, p=p / p.sum())]))
        return pd.DataFrame(rows, columns=["user", "item"])


def test_shares_agree_where_probabilities_are_true_and_not_where_they_are_bent(small):
    true, bent = Told(small), Told(small, 2.0)
    held_out = true.held_out()
    good, bad = (reliability(model, held_out) for model in (true, bent))
    for found in (good, bad):
        assert found.pairs == small.shape[0]
        assert found.bins["predicted"].sum() == pytest.approx(1)
        assert found.bins["observed"].sum() == pytest.approx(1)
        assert found.first["observed"].sum() <= 1
    # Ten or so bins of a few hundred pairs differ by about this much by chance.
    noise = np.sqrt(2 / np.pi * good.bins["predicted"] / good.pairs).sum()
    assert good.ece < 2 * noise
    assert good.ece_first < 2 * noise
    assert bad.ece > 3 * good.ece
    assert abs(good.first["observed"].sum() - good.first["predicted"].sum()) < 0.06
    assert bad.first["predicted"].sum() - bad.first["observed"].sum() > 0.06


def test_conformal_lists_hold_what_they_are_to_hold_even_if_probabilities_are_bent(small):
    for exponent in (1.0, 2.0, 0.0):
        model = Told(small, exponent)
        for level in (0.5, 0.9):
            found = reliability(model, model.held_out(), level=level)
            spread = 4 * np.sqrt(level * (1 - level) * 2 * 2 / small.shape[0])
            assert (abs(found.lists["held"] - level) < spread + 0.03).all(), found
            assert (found.lists["length"] >= 1).all()
    even = reliability(Told(small, 1.0), Told(small).held_out(), level=0.5)
    assert even.lists["length"].iloc[0] < small.shape[1] / 4


def test_several_pairs_of_a_user_count_each(small):
    model = Told(small)
    held_out = model.held_out()
    again = held_out.assign(item=Told(small).held_out()["item"].sample(frac=1, random_state=0).to_numpy())
    both = pd.concat([held_out, again]).drop_duplicates()
    matrix = small.to_scipy().toarray()
    rows, columns = small.positions("users", both["user"].tolist()), small.positions("items", both["item"].tolist())
    both = both[matrix[rows, columns] == 0]
    found = reliability(model, both)
    assert found.pairs == len(both)
    assert found.bins["predicted"].sum() == pytest.approx(1)
    assert found.bins["observed"].sum() == pytest.approx(1)


def test_bad_input_is_one_sentence(small):
    model = Told(small)
    with pytest.raises(InputError, match="level must be a number between 0 and 1"):
        reliability(model, model.held_out(), level=1.0)
    with pytest.raises(InputError, match="pairs of one user"):
        reliability(model, model.held_out().iloc[:1])
    with pytest.raises(InputError, match="truths must be a whole number, at least 1"):
        ps.calibrate(ps.PairedSymbols(), truths=-1)


def test_places_are_uniform_where_they_are_uniform():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"quantity": "energy", "count": 3, "place": rng.random(4000), "truth": np.arange(4000) % 8})
    places = Places(frame, Settings(), 8)
    row = places.coverage().iloc[0]
    assert row["held"] == pytest.approx(0.9, abs=0.03)
    assert places.coverage(0.5)["held"].iloc[0] == pytest.approx(0.5, abs=0.05)
    assert np.allclose(places.histogram("energy"), 0.1, atol=0.02)
    assert places.coverage(by="count")["count"].tolist() == [2.0]


@pytest.mark.slow
def test_truths_lie_anywhere_in_the_draws_and_outside_of_variational_intervals():
    """Priors as they are: places in draws are about uniform, as few as these are; a factorised posterior is narrow."""
    common = {"factors": 2, "tau_u": 1.0, "tau_v": 1.0, "tau_b": 1.0}
    shape = {"users": 60, "items": 16, "pairs": 900}
    exact = Settings(**common, inference="gibbs", hyperpriors=False)
    found = find_places(exact, truths=6, sweeps=200, **shape)
    table = found.coverage().set_index("quantity")
    assert table.index.tolist() == ["energy", "difference", "p(j | i)"]
    assert (table["held"] > 0.8).all(), table
    energy = found.frame[found.frame["quantity"] == "energy"]
    means = energy.groupby("truth")["place"].mean()
    assert stats.ttest_1samp(means, 0.5).pvalue > 1e-3
    narrow = find_places(Settings(**common), truths=6, **shape).coverage().set_index("quantity")
    assert narrow.index.tolist() == ["energy", "difference"]
    assert (narrow["held"] < table["held"][narrow.index] - 0.1).all(), narrow


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the chain has not settled")
def test_a_page_and_the_command_line_tell_the_same(tmp_path, small, small_model):
    held_out = Told(small).held_out()
    found = ps.calibrate(small_model, held_out, truths=1, users=40, items=10, pairs=300, sweeps=6)
    found.report(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    for words in ("Where simulated truths lie", "ECE, first 10", "Lists that hold the next item with 90 %", "<svg"):
        assert words in text
    assert "calibration error" in str(found)
    assert "<svg" in found._repr_html_()
    small_model.report(tmp_path / "report.html", calibration=found)
    assert "Probabilities against held-out pairs" in (tmp_path / "report.html").read_text()
    held_out.to_csv(tmp_path / "held.csv", index=False)
    done = run_here("calibrate", small_model.path, "held.csv", "-o", "mine.html", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert str(ps.calibrate(small_model, held_out)) in done.stdout
    assert (tmp_path / "mine.html").exists()
    words = ("calibrate", "--truths", 1, "--users", 30, "--items", 8, "--pairs", 200, "--sweeps", 6, "--factors", 2)
    done = run_here(*words, "--inference", "gibbs", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "90 % intervals that hold the truth, 1 truths" in done.stdout
    done = run_here("calibrate", small_model.path, "--factors", 3, cwd=tmp_path)
    assert done.returncode == 2
    assert "MODEL has its own" in done.stderr


@pytest.mark.draws
@pytest.mark.filterwarnings("ignore:the chain has not settled")
def test_a_report_of_a_chain_shows_traces_and_draws(tmp_path, small):
    chain = ps.PairedSymbols(factors=2, inference="gibbs")
    chain.fit(small, tmp_path / "chain.zarr", sweeps=30, burn=6, thin=4, progress=False)
    chain.report(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    for words in ("<h2>Chain</h2>", "largest split R-hat", "Traces after burn-in", "<h2>Popularity</h2>", "over draws"):
        assert words in text
