"""Energies of listed pairs against the products of whole sides."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from helpers.sides import DTYPES, make_side, plain_moments

from pairsym_dask.kernels.energies import energies_of


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("factors", [1, 8, 21])
def test_listed_pairs_have_the_energies_of_all_pairs(dtype, factors):
    rng = np.random.default_rng(factors)
    sides = [make_side(rng, n, factors, dtype) for n in (7, 30)]
    user, item = rng.integers(0, 7, 50), rng.integers(0, 30, 50)
    users, items = (
        SimpleNamespace(mean=side["mean"], variance=side["v"], bias=side["b"], bias_variance=side["w"])
        for side in sides
    )
    mean, variance = energies_of(users, items, user, item)
    a, xi = plain_moments(*sides)
    tolerance = 1e-5 if dtype is np.float32 else 1e-12
    assert mean.dtype == variance.dtype == dtype
    assert np.allclose(mean, a[user, item], rtol=tolerance, atol=tolerance)
    assert np.allclose(variance, (xi**2 - a**2)[user, item], rtol=tolerance, atol=10 * tolerance)
