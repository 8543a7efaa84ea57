"""Several held-out items a user: measures of lists against every order of tied items, and what a catalogue shows."""

from __future__ import annotations

import itertools

import dask
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from helpers.scored import Chances, Table, make_counts

import pairsym_dask as ps
from pairsym_dask.evaluation import lists, ranks
from pairsym_dask.evaluation.measures import OF_LISTS


def orders(scores, items):
    """Every ranking of some items by falling score, ties in every order."""
    levels = [[j for j in items if scores[j] == x] for x in sorted({scores[j] for j in items}, reverse=True)]
    for parts in itertools.product(*(itertools.permutations(level) for level in levels)):
        yield [j for part in parts for j in part]


def reference(scores, unseen, held, n):
    """Recall, NDCG and average precision of one user's list, averaged over the orders of tied items."""
    ideal = sum(1 / np.log2(1 + p) for p in range(1, min(n, len(held)) + 1))
    found = []
    for order in orders(scores, unseen):
        hits = [p for p, j in enumerate(order[:n], 1) if j in held]
        found.append(
            (
                len(hits) / len(held),
                sum(1 / np.log2(1 + p) for p in hits) / ideal,
                sum(k / p for k, p in enumerate(hits, 1)) / min(n, len(held)),
            )
        )
    return dict(zip(("recall", "ndcg", "map"), np.mean(found, axis=0), strict=True))


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """Few items, so that all orders can be tried: (counts, held-out pairs, seen)."""
    rng = np.random.default_rng(4)
    seen = rng.random((25, 8)) < 0.25
    held = ~seen & (rng.random(seen.shape) < 0.4)
    seen[0] = False
    counts = ps.ingest(scipy.sparse.csr_matrix(seen * 1), tmp_path_factory.mktemp("few") / "c.zarr")
    held_out = pd.DataFrame(np.argwhere(held), columns=["user", "item"]).sample(frac=1, random_state=1)
    assert (held_out["user"].value_counts() > 2).sum() > 5
    return counts, held_out.reset_index(drop=True), seen


@pytest.mark.parametrize("levels", [2, 3, 10**9])
@pytest.mark.parametrize("n", [1, 3, 8, 50])
def test_lists_are_judged_by_every_order_of_ties(few, levels, n):
    counts, held_out, seen = few
    scores = np.random.default_rng(levels).integers(levels, size=seen.shape)
    result = ps.evaluate(Table(counts, scores), held_out, n=n)
    assert result.lists["user"].tolist() == held_out["user"].unique().tolist()
    for row in result.lists.to_dict("records"):
        held = set(held_out.loc[held_out["user"] == row["user"], "item"])
        expected = reference(scores[row["user"]], np.flatnonzero(~seen[row["user"]]), held, n)
        assert row["pairs"] == len(held)
        assert row["c"] == seen[row["user"]].sum()
        assert {name: row[name] for name in expected} == pytest.approx(expected, rel=1e-12)
    for name in OF_LISTS:
        assert result.overall[name] == pytest.approx(result.lists[name].mean())
        spread = result.lists[name].std(ddof=1) / len(result.lists) ** 0.5
        assert result.overall[f"{name}_se"] == pytest.approx(spread)


def test_lists_cover_what_recommend_would_show(tmp_path):
    """Coverage and novelty of the very lists that a model gives, equal scores by position."""
    from pairsym_dask.baselines import BPR

    counts, held_out = make_counts(tmp_path / "c.zarr", 60, 90)
    model = BPR(factors=2, epochs=3).fit(counts)
    result = ps.evaluate(model, held_out, n=[2, 5])
    c = counts.marginal("items")
    bits = pd.Series(-np.log2((c + 1) / (c + 1).sum()), index=counts.item_ids)
    for n in (2, 5):
        shown = model.recommend(held_out["user"].unique(), n=n)
        assert result.overall[f"coverage@{n}"] == shown["item"].nunique() / 90
        novelty = shown["item"].map(bits).groupby(shown["user"]).mean()
        np.testing.assert_allclose(result.lists.set_index("user")[f"novelty@{n}"].sort_index(), novelty.sort_index())
    assert result.overall["coverage@2"] < result.overall["coverage@5"]


def test_best_unseen_takes_equal_scores_by_position():
    rng = np.random.default_rng(0)
    scores, seen = rng.integers(4, size=(60, 17)).astype(np.float32), rng.random((60, 17)) < 0.4
    seen[5] = True
    for n in (1, 4, 17, 30):
        best = lists.best_unseen(scores, seen, n)
        for u in range(60):
            expected = [j for j in np.argsort(-scores[u], kind="stable") if not seen[u, j]][:n]
            assert best[u].tolist() == expected + [-1] * (n - len(expected))


def test_one_item_a_user_makes_recall_hr_and_map_the_reciprocal_rank_within_n(tmp_path):
    counts, held_out = make_counts(tmp_path / "c.zarr")
    one_each = held_out.drop_duplicates("user").reset_index(drop=True)
    result = ps.evaluate(Table(counts, np.random.default_rng(0).random(counts.shape)), one_each, n=4)
    for of_list, of_pair in (("recall", "hr"), ("ndcg", "ndcg")):
        np.testing.assert_array_equal(result.lists[of_list], result.per_user[of_pair])
    assert result.overall["recall"] == result.overall["hr"]
    assert result.overall["recall_se"] == result.overall["hr_se"]
    rank = result.per_user["position"]
    np.testing.assert_array_equal(result.lists["map"], np.where(rank <= 4, 1 / rank, 0))


def test_several_lengths_are_those_of_one_at_a_time(few):
    counts, held_out, _ = few
    model = Table(counts, np.random.default_rng(0).integers(5, size=counts.shape))
    several = ps.evaluate(model, held_out, n=[6, 2])
    assert several.cutoffs == (2, 6)
    for n in (2, 6):
        one = ps.evaluate(model, held_out, n=n)
        for name in ("hr", "recall", "ndcg", "map", "novelty", "coverage"):
            assert several.overall[f"{name}@{n}"] == one.overall[name]
        for name in ("R", "mrr"):
            assert several.overall[name] == one.overall[name]
    text = str(several)
    for title in ("recall@2", "recall@6", "NDCG@6", "MAP@2", "lists of 6 hold"):
        assert title in text
    both = ps.compare({"a": model, "b": Table(counts, -model.table)}, held_out, n=[2, 6])
    assert {"R", "recall@2", "ndcg@6", "log_likelihood"} <= set(both.frame["measure"])
    assert "recall@6" in str(both)


def test_lists_do_not_depend_on_blocks(tmp_path, monkeypatch):
    counts, held_out = make_counts(tmp_path / "c.zarr", 200, 50)
    model = Chances(counts, np.random.default_rng(0).integers(1, 6, size=counts.shape))
    expected = ps.evaluate(model, held_out, n=[1, 7])
    for cells, batch in itertools.product((1, 300), (1, 10**6)):
        monkeypatch.setattr(ranks, "CELLS", cells)
        monkeypatch.setattr(ranks, "BATCH", batch)
        found = ps.evaluate(model, held_out, n=[1, 7])
        pd.testing.assert_frame_equal(found.lists, expected.lists)
        assert found.coverage == expected.coverage
    with dask.config.set(scheduler="synchronous"):
        assert ps.evaluate(model, held_out, n=[1, 7]).coverage == expected.coverage


def test_columns_may_have_other_names_and_unknown_symbols_may_be_skipped(few):
    counts, held_out, _ = few
    model = Table(counts, np.random.default_rng(0).random(counts.shape))
    expected = ps.evaluate(model, held_out)
    named = held_out.rename(columns={"user": "who", "item": "what"})
    pd.testing.assert_frame_equal(ps.evaluate(model, named, user="who", item="what").per_user, expected.per_user)
    strangers = pd.DataFrame({"user": [0, 999], "item": [888, 1]})
    more = pd.concat([strangers, held_out], ignore_index=True)
    with pytest.raises(ps.InputError, match=r'unknown user label: .* out with unknown="skip"'):
        ps.evaluate(model, more)
    skipped = ps.evaluate(model, more, unknown="skip")
    assert skipped.skipped == 2
    assert "2 pairs of unknown users or items" in str(skipped)
    pd.testing.assert_frame_equal(skipped.lists, expected.lists)
    with pytest.raises(ps.InputError, match="both symbols of none of the 2"):
        ps.evaluate(model, strangers, unknown="skip")
    with pytest.raises(ps.InputError, match='unknown must be "error" or "skip"'):
        ps.evaluate(model, held_out, unknown="drop")


def test_joined_splits_keep_a_list_a_split(few):
    counts, held_out, _ = few
    first, second = (
        ps.evaluate(Table(counts, np.random.default_rng(seed).random(counts.shape)), held_out) for seed in (0, 1)
    )
    both = type(first).join([first, second])
    assert both.overall["ndcg"] == pytest.approx((first.overall["ndcg"] + second.overall["ndcg"]) / 2)
    assert both.overall["users"] == first.overall["users"]


@pytest.mark.parametrize("n", [0, True, 2.5, [], [3, 3], [2, 0], "5"])
def test_lengths_are_checked(few, n):
    counts, held_out, _ = few
    with pytest.raises(ps.InputError, match="n must be a whole number"):
        ps.evaluate(Table(counts, np.zeros(counts.shape)), held_out, n=n)
