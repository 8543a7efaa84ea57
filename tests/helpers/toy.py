"""A handful of symbols with all that the sampler's kernels take."""

from __future__ import annotations

import numpy as np
from numba import config

from pairsym_dask.kernels import draws
from pairsym_dask.kernels.layout import padded_width, row_offsets
from pairsym_dask.kernels.random import alias_table
from pairsym_dask.kernels.streams import stream_key

REPEATS = 300 if config.DISABLE_JIT else 6_000


class Toy:
    """Five users, four items, all that a half-sweep needs."""

    def __init__(self, users=5, items=4, factors=3, rate=3.0, dtype="float64", seed=0, components=1):
        rng = np.random.default_rng(seed)
        self.factors, self.width, self.dtype = factors, padded_width(factors), dtype
        self.u, self.v = (rng.standard_normal((n, factors)).astype(dtype) for n in (users, items))
        self.b, self.e = (rng.standard_normal(n).astype(dtype) for n in (users, items))
        self.own, self.table = np.empty(users * self.width, dtype), np.empty(items * self.width, dtype)
        draws.fill_draw_table(self.u, self.b, self.width, self.own)
        draws.fill_draw_table(self.v, self.e, self.width, self.table)
        self.chances = np.ascontiguousarray(rng.dirichlet(np.ones(items), components).T)  # kernels follow pointers
        self.psi = self.chances[:, 0]
        tables = [alias_table(np.ascontiguousarray(psi)) for psi in self.chances.T]
        self.kept, self.alias = (np.concatenate(parts) for parts in zip(*tables, strict=True))
        self.rates = np.ascontiguousarray(rate * rng.dirichlet(np.ones(users), components).T * users)
        self.offered = self.rates @ self.chances.T
        counts = rng.poisson(1.0, (users, items))
        self.matrix = counts
        self.indptr = np.r_[0, np.cumsum((counts > 0).sum(1))]
        self.indices = np.nonzero(counts)[1].astype(np.uint32)
        self.counts = counts[counts > 0].astype(np.uint8)
        self.size = draws.draw_statistics_size(factors)
        self.energy = self.u.astype(float) @ self.v.T + self.b[:, None] + self.e

    def own_pairs(self, sweep, rows=slice(None)):
        first, stop, _ = rows.indices(self.b.size)
        out, totals = np.empty((stop - first, self.size), self.dtype), np.zeros(3)
        pairs = np.zeros((stop - first, self.rates.shape[1]), int)
        draws.add_own_pairs(
            stream_key(7, sweep, 0), first, self.rates[rows], self.indptr[first : stop + 1], self.indices, self.counts,
            self.kept, self.alias, self.chances, self.own[first * self.width : stop * self.width], self.table,
            self.factors, out, pairs, totals,
        )  # fmt: skip
        return out, pairs, totals

    def their_pairs(self, sweep, rows=slice(None), columns=slice(None), buffer=64):
        first, stop, _ = rows.indices(self.b.size)
        start, end, _ = columns.indices(self.e.size)
        out, totals = np.zeros((end - start, self.size), self.dtype), np.zeros(3)
        pairs = np.zeros((end - start, self.rates.shape[1]), int)
        draws.add_their_pairs(
            stream_key(7, sweep, 0), first, self.rates[rows], self.indptr[first : stop + 1], self.indices, self.counts,
            self.kept, self.alias, self.chances, self.own[first * self.width : stop * self.width], self.table,
            self.factors, start, buffer, out, pairs, totals,
        )  # fmt: skip
        return out, pairs, totals

    def censored_of(self, pairs, row):
        """The censored pairs of one row by column, whatever their components."""
        return pairs.sum(1) - self.matrix[row]

    def square(self, stats_):
        """The packed triangles as square matrices over [traits, one, bias], and sum kappa z."""
        n = self.factors + 2
        offsets = row_offsets(self.width)
        upper = np.array(
            [[[row[offsets[min(a, b)] + max(a, b)] for b in range(n)] for a in range(n)] for row in stats_]
        )
        return upper, stats_[:, -self.width :][:, :n]
