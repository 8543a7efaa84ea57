"""A counts store's record and its files agree, before anything is made after what the record says."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ..errors import DamagedStoreError
from .arrays import ArraySpec

if TYPE_CHECKING:
    from .counts import Counts


def check_complete(counts: Counts) -> None:
    """See that the record's shapes agree with its files."""
    keys: list[Iterable[tuple[ArraySpec, str]]] = []
    count = 0
    for side, cut in counts.cuts.items():
        pairs = counts.record["tiles"][side]
        if len(pairs) != cut.tiles or sum(pairs) != counts.nnz:
            raise DamagedStoreError(f"{counts.path} declares {counts.nnz} pairs, but its tiles by {side[:-1]} do not")
        label, marginal = counts.columns[side].spec, counts.marginals[side]
        ends = [counts.columns[side].ends] if f"{side}/label_ends/c.0.0" in counts.ends else []
        slots, arrays = counts.slots[side] if side in counts.kept else [], counts.pair_arrays[side]
        keys.append(_keys((label, marginal), ends, arrays, slots))
        count += label.count + marginal.count + len(ends) + len(slots) + 2 * sum(slots)
    counts.sealed.check_complete(itertools.chain(*keys), count)


def _keys(
    whole: Iterable[ArraySpec], ends: Iterable[ArraySpec], pairs: Sequence[ArraySpec], slots: Sequence[int]
) -> Iterator[tuple[ArraySpec, str]]:
    """Every chunk of a side's arrays; of those with pairs as many as each tile has."""
    yield from ((array, array.key(k)) for array in whole for k in range(array.count))
    yield from ((array, array.key(0, 0)) for array in ends)
    yield from ((pairs[2], pairs[2].key(tile, 0)) for tile in range(len(slots)))
    yield from ((array, array.key(tile, k)) for array in pairs[:2] for tile, n in enumerate(slots) for k in range(n))
