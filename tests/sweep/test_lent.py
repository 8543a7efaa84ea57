"""Memory that is lent and used again: never by two at a time, and never more idle than allowed."""

from __future__ import annotations

import numpy as np

from pairsym_dask.sweep.lent import LEAST, Pool

LARGE = (LEAST // 8 + 3,)


def test_memory_comes_back_with_the_last_view_only() -> None:
    pool = Pool()
    array = pool.empty(LARGE, "float64", 10 * LEAST)
    where, view = array.ctypes.data, memoryview(array[5:7])
    del array
    assert pool.nbytes == 0  # the view still has it
    assert pool.empty(LARGE, "float64", 10 * LEAST).ctypes.data != where
    view.release()
    del view
    again = [pool.empty(LARGE, "float64", 10 * LEAST).ctypes.data for _ in range(1)]
    assert where in again or pool.nbytes > 0


def test_two_arrays_never_share_memory() -> None:
    pool = Pool()
    del_me = [pool.empty(LARGE, "float64", 10 * LEAST) for _ in range(3)]
    del del_me
    assert pool.nbytes > 0
    one, two = (pool.empty(LARGE, "float64", 10 * LEAST) for _ in range(2))
    one[:], two[:] = 1.0, 2.0
    assert (one == 1.0).all()
    assert (two == 2.0).all()
    assert not np.shares_memory(one, two)
    assert all(array.ctypes.data % 64 == 0 for array in (one, two))


def test_idle_memory_stays_within_its_limit() -> None:
    pool, limit = Pool(), 3 * LEAST
    arrays = [pool.empty(LARGE, "float64", limit) for _ in range(6)]
    del arrays
    assert 0 < pool.nbytes <= limit
    pool.clear()
    assert pool.nbytes == 0
    small = pool.empty((LEAST // 8,), "float64", LEAST - 1)  # larger than may be idle: not lent at all
    del small
    assert pool.nbytes == 0
