"""Who takes part in a benchmark, and the space of settings that each is searched in.

A setting's values are a short list; trials are drawn from all combinations. `paired_symbols` is the place for more rows
of this package's own model.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from .. import baselines
from ..evaluation.tune import POPULARITIES
from ..model import PairedSymbols
from ..store.counts import Counts


@dataclass(frozen=True)
class Contender:
    """A system, settings that it always has, those that are searched, and exponents, all tried on the same fit."""

    system: type
    space: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    popularities: Sequence[float | None] = (None,)

    def trials(self, most: int, random_state: int) -> list[dict[str, Any]]:
        """So many different combinations, drawn at random; all of them where there are no more."""
        shape = tuple(len(values) for values in self.space.values())
        total = int(np.prod(shape, dtype=np.int64))
        drawn = np.random.default_rng(random_state).permutation(total)[:most]
        return [
            {
                name: values[k]
                for (name, values), k in zip(self.space.items(), np.unravel_index(one, shape), strict=True)
            }
            for one in drawn
        ]

    def neighbours(self, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Combinations that are one step of one setting away; of settings from another space there are none."""
        if any(settings.get(name) not in values for name, values in self.space.items()):
            return []
        found = []
        for name, values in self.space.items():
            at = values.index(settings[name])
            found += [{**settings, name: values[k]} for k in (at - 1, at + 1) if 0 <= k < len(values)]
        return found

    def fit(self, settings: Mapping[str, Any], counts: Counts, path: str, threads: int | None = None) -> Any:
        """A fitted model; a model store goes to `path`."""
        given = {**self.fixed, **settings}
        if self.system is PairedSymbols:
            if "tau" in given:
                given |= dict.fromkeys(("tau_u", "tau_v"), given.pop("tau"))
            sweeps = given.pop("sweeps", 20)
            return PairedSymbols(**given).fit(counts, path, sweeps=sweeps, threads=threads, progress=False)
        names = {one.name for one in fields(self.system)}
        # Only where the result does not depend on it: threads of BPR write to the same parameters without locks.
        if "threads" in names and self.system in (baselines.IALS, baselines.ImplicitALS):
            given["threads"] = threads or os.cpu_count() or 1
        return self.system(**given).fit(counts)


def paired_symbols(factors: int) -> Contender:
    """This package's model at a number of factors; "tau" stands for the traits of both sides."""
    space = {
        "tau": (0.5, 0.7, 1.0),
        "discount": (0.2, 0.35, 0.5),
        "prior_growth": (0.7, 0.85, 1.0),
        "background_users": (0.0, 0.4),
        "background_items": (0.0, 0.1, 0.4),
        "sweeps": (4, 5, 8, 16),
    }
    return Contender(PairedSymbols, space, {"factors": factors}, POPULARITIES)


def _ials(factors: int) -> Contender:
    space = {
        "regularization": (1.0, 3.0, 10.0, 30.0, 100.0),
        "alpha": (5.0, 10.0, 20.0, 40.0, 80.0),
        "nu": (0.5, 1.0),
        "iterations": (8, 16),
    }
    return Contender(baselines.IALS, space, {"factors": factors})


CONTENDERS: dict[str, Contender] = {
    "popularity": Contender(baselines.Popularity),
    "item-knn": Contender(
        baselines.ItemKNN, {"neighbours": (20, 50, 100, 200, 500), "shrinkage": (0.0, 3.0, 10.0, 30.0, 100.0)}
    ),
    "rp3beta": Contender(
        baselines.RP3beta,
        {"alpha": (0.4, 0.6, 0.8, 1.0), "beta": (0.0, 0.1, 0.2, 0.3, 0.4, 0.6), "neighbours": (100, 200, 500)},
    ),
    "implicit-als": Contender(
        baselines.ImplicitALS,
        {
            "regularization": (0.01, 0.1, 1.0, 10.0, 30.0),
            "alpha": (5.0, 10.0, 20.0, 40.0, 80.0),
            "iterations": (8, 15),
        },
        {"factors": 64},
    ),
    "ials-64": _ials(64),
    "ials-256": _ials(256),
    "implicit-bpr": Contender(
        baselines.ImplicitBPR,
        {
            "learning_rate": (0.02, 0.05, 0.1),
            "regularization": (0.0003, 0.001, 0.003, 0.01),
            "iterations": (100, 200, 400),
        },
        {"factors": 64},
    ),
    "gf-cf": Contender(baselines.GraphFilter, {"factors": (64, 128, 256), "ideal": (0.1, 0.2, 0.3, 0.5, 1.0)}),
    "ease": Contender(baselines.EASE, {"regularization": (100.0, 200.0, 500.0, 1000.0, 2000.0)}),
    **{f"paired-symbols-{factors}": paired_symbols(factors) for factors in (64, 256, 512)},
}
