"""A fit that leaves the numbers stops and says where; a bound that falls is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.faults import all_bits, run_fit, tiny_counts

from pairsym_dask.errors import NumericError
from pairsym_dask.settings import Settings
from pairsym_dask.store.counts import Counts
from pairsym_dask.store.model_store import ModelStore
from pairsym_dask.store.verify import verify
from pairsym_dask.sweep import tasks


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory) -> Counts:
    return tiny_counts(tmp_path_factory.mktemp("counts") / "counts.zarr")


def test_a_block_that_is_not_finite_stops_the_fit_and_names_the_label(
    counts: Counts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.zarr"
    run_fit(counts, path, 1)
    before = all_bits(path)
    update = tasks.rows.update_rows

    def spoil(*arguments: Any) -> None:
        update(*arguments)
        arguments[-1].mean[3, 1] = np.nan  # the mean of the fourth row of the block

    monkeypatch.setattr(tasks.rows, "update_rows", spoil)
    with pytest.raises(
        NumericError, match=r"the update of user (np.int64\()?3\)? \(block 0 of the users\) is not finite"
    ):
        run_fit(counts, path, 2)
    monkeypatch.undo()
    assert all_bits(path) == before
    assert verify(path).sound
    assert len(run_fit(counts, path, 2).record["files"]) > 0


def test_a_bound_that_is_not_a_number_is_never_committed(
    counts: Counts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.zarr"
    run_fit(counts, path, 1)
    monkeypatch.setattr("pairsym_dask.sweep.fit.side_bound", lambda *arguments: float("nan"))
    with pytest.raises(NumericError, match="elbo of sweep 2 is nan; the last committed sweep is intact"):
        run_fit(counts, path, 2)
    assert len(ModelStore(path).commits()) == 2


@pytest.mark.parametrize(("selection", "warns"), [("bayes", True), ("constant", False)])
def test_a_falling_bound_is_a_warning_that_says_by_how_much(
    selection: str, warns: bool, counts: Counts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(factors=2, selection=selection)
    path = tmp_path / "model.zarr"
    run_fit(counts, path, 1, settings=settings)
    bound = ModelStore(path).commits()[-1].scalar("elbo")
    monkeypatch.setattr("pairsym_dask.sweep.fit.side_bound", lambda *arguments: bound)
    if warns:
        with pytest.warns(UserWarning, match=r"the bound fell by \d+.* \(\d\.\de.* of it\) in sweep 2, from -"):
            run_fit(counts, path, 2, settings=settings)
    else:
        run_fit(counts, path, 2, settings=settings)
