"""How well held-out items are ranked and predicted: the paper's R by activity of the user, and what others report.

Every measure ranks the held-out item j* among all items that its user i has not seen in training (other held-out
items of the same user are among them). Scores that tie with j*'s are taken in every order equally often, so HR,
NDCG, MRR and position are expectations over those orders; R counts strictly smaller scores, as eq. (rank) does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import digamma

from ..answers.predict import Predictor
from ..answers.query import check_popularity
from ..display import cards as display
from ..errors import InputError
from ..options import whole_number
from ..settings import POPULARITY
from ..store.counts import Counts, open_counts
from .ranks import Committed, Pairs, Ranks, Scorer, Source, rank

MEASURES = ("R", "mean_percentile", "hr", "ndcg", "mrr", "log_likelihood")
COMPARED = ("R", "ndcg", "log_likelihood")
REPLICATES = 1000  # of the bootstrap


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Measures of one model on held-out pairs.

    `per_user` has a row a held-out pair: user, item, c (the user's training count), position and the measures;
    `frame` a row a bin of c, in powers of two, with means and standard errors; `overall` the same over all pairs.
    """

    per_user: pd.DataFrame
    n: int
    users: int  # of the training store
    whole: bool  # whether counts are whole numbers

    @cached_property
    def frame(self) -> pd.DataFrame:
        exponent = _exponents(self.per_user["c"].to_numpy())
        rows = []
        for e in np.unique(exponent):
            low = 0.0 if e == _NOTHING else float(2.0**e)
            rows.append({"bin": _bin_name(low, self.whole), "low": low, **_summary(self.per_user[exponent == e])})
        return pd.DataFrame(rows)

    @cached_property
    def overall(self) -> pd.Series:
        return pd.Series(_summary(self.per_user), name="overall")

    def _table(self) -> pd.DataFrame:
        table = pd.concat([self.frame, pd.DataFrame([{"bin": "all", **self.overall}])], ignore_index=True)
        titles = {"bin": "c", "R": "R", "R_se": "se(R)", "mean_percentile": "percentile", "hr": f"HR@{self.n}"}
        titles |= {"ndcg": f"NDCG@{self.n}", "mrr": "MRR", "log_likelihood": "log p(j|i)", "perplexity": "perplexity"}
        table = table.astype({"users": "int64", "pairs": "int64"})
        if (table["users"] == table["pairs"]).all():
            table = table.drop(columns="pairs")
        columns = ["bin", "users", *(["pairs"] if "pairs" in table else []), *list(titles)[1:]]
        return table[columns].rename(columns=titles)

    def _caption(self) -> str:
        without = self.users - int(self.overall["users"])
        return f"{len(self.per_user):,} held-out pairs; {without:,} of {self.users:,} users have none"

    def __repr__(self) -> str:
        table = self._table()
        return f"{table.to_string(index=False, formatters=_formatters(table), na_rep='-')}\n{self._caption()}"

    def _repr_html_(self) -> str:
        table, formats = self._table(), _formatters(self._table())
        rows = [
            ["-" if pd.isna(value) else formats.get(str(name), str)(value) for name, value in row.items()]
            for row in table.to_dict("records")
        ]
        return f"{display.table([*map(str, table)], rows)}<p>{self._caption()}</p>"

    def plot(self, ax: Any = None, label: str | None = None) -> Any:
        """The average rank R by the user's training count, with standard errors; the axes."""
        ax = ax or new_axes()
        _plot_bins(ax, self.frame, 0, label)
        return ax


@dataclass(frozen=True, repr=False)
class Comparison:
    """Several models on the same held-out pairs, with paired bootstrap intervals of differences to the first.

    `frame` has a row a model and measure (R, ndcg, log_likelihood): value, difference to the first model, and the
    ends of its 95 % interval over users.
    """

    evaluations: dict[str, Evaluation]
    frame: pd.DataFrame

    @cached_property
    def table(self) -> pd.DataFrame:
        """A row a model, a column a measure."""
        return pd.DataFrame({name: one.overall for name, one in self.evaluations.items()}).T.rename_axis("model")

    def _table(self) -> pd.DataFrame:
        first, n = next(iter(self.evaluations)), next(iter(self.evaluations.values())).n
        titles = {"R": "R", "ndcg": f"NDCG@{n}", "log_likelihood": "log p(j|i)"}
        out = pd.DataFrame({"model": list(self.evaluations)})
        for measure, title in titles.items():
            rows = self.frame[self.frame["measure"] == measure].set_index("model").loc[list(self.evaluations)]
            out[title] = [_number(value) for value in rows["value"]]
            out[f"{title} - {first}"] = [
                "" if name == first else _interval(*rows.loc[name, ["difference", "low", "high"]])
                for name in self.evaluations
            ]
        out[f"HR@{n}"] = [_number(one.overall["hr"]) for one in self.evaluations.values()]
        return out

    def _caption(self) -> str:
        one = next(iter(self.evaluations.values()))
        return f"{one._caption()}; intervals: 95 %, paired bootstrap over users"

    def __repr__(self) -> str:
        return f"{self._table().to_string(index=False)}\n{self._caption()}"

    def _repr_html_(self) -> str:
        table = self._table()
        return f"{display.table([*map(str, table)], table.to_numpy().astype(str).tolist())}<p>{self._caption()}</p>"

    def plot(self, ax: Any = None) -> Any:
        """The average rank R by the user's training count, a line a model; the axes."""
        ax = ax or new_axes()
        for k, (name, one) in enumerate(self.evaluations.items()):
            _plot_bins(ax, one.frame, k, name)
        ax.legend()
        return ax


def evaluate(
    model: Any,
    held_out: pd.DataFrame,
    popularity: float = POPULARITY,
    *,
    n: int = 10,
    client: Any = None,
    threads: int | None = None,
    memory: int | str | None = None,
) -> Evaluation:
    """Rank held-out pairs (a frame with columns user and item) among all items unseen in training.

    `model` has `counts`, its training store, and `scores(users)` or `scores(users, popularity=...)` with a row of
    scores in the store's item order a user; log p(j* | i) comes from `conditional(user)` where there is one.
    Blocks of users are dask tasks on `client`, else on the current client, else on `threads` threads (other models
    than PairedSymbols stay on threads of this process); `memory` bounds how many are under way.
    """
    n = whole_number("n", n, least=1)
    counts = _counts_of(model)
    pairs = Pairs.read(held_out, counts)
    source = _source(model, check_popularity(popularity))
    ranks = rank(source, counts, pairs, client=client, threads=threads, memory=memory)
    return summarise(ranks, 0, counts, pairs, held_out, n)


def compare(
    models: Mapping[str, Any],
    held_out: pd.DataFrame,
    popularity: float = POPULARITY,
    *,
    n: int = 10,
    random_state: int = 0,
    client: Any = None,
    threads: int | None = None,
    memory: int | str | None = None,
) -> Comparison:
    """Evaluate several models by name on the same held-out pairs; differences are to the first."""
    if not isinstance(models, Mapping) or not models:
        raise InputError("models must be a dict of at least one model by name")
    stores = {name: _counts_of(model) for name, model in models.items()}
    first = next(iter(stores))
    for name, counts in stores.items():
        if counts.digest != stores[first].digest:
            raise InputError(
                f"{name!r} was fitted to another store ({counts.path}) than {first!r} ({stores[first].path}): "
                "only models of the same training pairs can be compared"
            )
    evaluations = {
        name: evaluate(model, held_out, popularity, n=n, client=client, threads=threads, memory=memory)
        for name, model in models.items()
    }
    return Comparison(evaluations, _differences(evaluations, random_state))


def summarise(ranks: Ranks, way: int, counts: Counts, pairs: Pairs, held_out: pd.DataFrame, n: int) -> Evaluation:
    """Measures of one way of scoring."""
    above, ties, unseen = ranks.above[way], ranks.ties[way], ranks.unseen
    below = unseen - 1 - above - ties
    gain = np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(2, n + 2)))])  # of the first positions
    last = above + ties + 1
    measures = {
        "position": above + 1 + ties / 2,
        "R": below / unseen,
        "mean_percentile": np.where(unseen > 1, (below + ties / 2) / np.maximum(unseen - 1, 1), 1.0),
        "hr": (np.minimum(last, n) - np.minimum(above, n)) / (ties + 1),
        "ndcg": (gain[np.minimum(last, n)] - gain[np.minimum(above, n)]) / (ties + 1),
        "mrr": np.where(ties == 0, 1 / last, (digamma(last + 1.0) - digamma(above + 1.0)) / (ties + 1)),
        "log_likelihood": ranks.log_likelihood,
    }
    columns = {"user": held_out["user"].to_numpy(), "item": held_out["item"].to_numpy()}
    columns["c"] = pairs.given(counts.marginal("users")[pairs.user])
    frame = pd.DataFrame(columns | {name: pairs.given(values) for name, values in measures.items()})
    whole = np.issubdtype(np.dtype(counts.layout.count_dtype), np.integer)
    return Evaluation(frame, n, counts.shape[0], bool(whole))


def _counts_of(model: Any) -> Counts:
    if not hasattr(model, "counts") or not hasattr(model, "scores"):
        raise InputError(f"a model must have counts and scores(users); {type(model).__name__} has not")
    return open_counts(model.counts)


def _source(model: Any, popularity: float) -> Source:
    predictor = getattr(model, "_predictor", None)
    if isinstance(predictor, Predictor):  # a PairedSymbols: its store travels, not the object
        return Committed(predictor.commit, predictor.counts, (popularity,))
    return Scorer(model, popularity)


_NOTHING = -(2**30)  # stands for log2 of 0


def _exponents(c: np.ndarray) -> np.ndarray:
    """floor(log2 c), exactly."""
    return np.where(c > 0, np.frexp(c)[1] - 1, _NOTHING)


def _bin_name(low: float, whole: bool) -> str:
    if low == 0 or (whole and low == 1):
        return f"{low:g}"
    return f"{low:.0f}-{2 * low - 1:.0f}" if whole else f"[{low:g}, {2 * low:g})"


def _summary(part: pd.DataFrame) -> dict[str, float]:
    """Means over pairs with standard errors over users (one user's pairs are not independent)."""
    user = pd.factorize(part["user"])[0]
    users, pairs = int(user.max()) + 1, len(part)
    out: dict[str, float] = {"users": users, "pairs": pairs}
    for name in MEASURES:
        values = part[name].to_numpy(np.float64)
        mean = values.mean()
        with np.errstate(invalid="ignore"):  # a log-likelihood of -inf
            by_user = np.bincount(user, values - mean)
        out[name] = mean
        out[f"{name}_se"] = np.sqrt((by_user**2).sum() * users / (users - 1)) / pairs if users > 1 else np.nan
    out["perplexity"] = np.exp(-out["log_likelihood"])
    return out


def _differences(evaluations: dict[str, Evaluation], random_state: int) -> pd.DataFrame:
    """Values and paired bootstrap intervals, the same drawn users for all models and measures."""
    names = list(evaluations)
    base = evaluations[names[0]].per_user
    user = pd.factorize(base["user"])[0]
    users = int(user.max()) + 1
    pairs = np.bincount(user).astype(np.float64)
    sums, rows = [], []
    for name, one in evaluations.items():
        for measure in COMPARED:
            values = one.per_user[measure].to_numpy(np.float64)
            with np.errstate(invalid="ignore"):
                difference = values - base[measure].to_numpy(np.float64)
            sums.append(np.bincount(user, difference))
            rows.append({"model": name, "measure": measure, "value": values.mean(), "difference": difference.mean()})
    columns = np.stack(sums, axis=1)
    generator = np.random.default_rng(random_state)
    drawn = np.empty((REPLICATES, columns.shape[1]))
    for k in range(REPLICATES):
        weight = np.bincount(generator.integers(users, size=users), minlength=users).astype(np.float64)
        drawn[k] = weight @ columns / (weight @ pairs)
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    return pd.DataFrame(rows).assign(low=low, high=high)


def _number(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.4f}"


def _interval(difference: float, low: float, high: float) -> str:
    return "-" if np.isnan(difference) else f"{difference:+.4f} [{low:+.4f}, {high:+.4f}]"


def _formatters(table: pd.DataFrame) -> dict[str, Any]:
    formats = {name: "{:.4f}" for name in table.columns if table[name].dtype.kind == "f"}
    formats |= {"perplexity": "{:,.1f}", "users": "{:,}", "pairs": "{:,}"}
    return {name: text.format for name, text in formats.items() if name in table}


def new_axes() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise InputError('plots need matplotlib: pip install "pairsym_dask[plot]"') from None
    return plt.subplots(figsize=(6, 4), layout="constrained")[1]


def _plot_bins(ax: Any, frame: pd.DataFrame, number: int, label: str | None) -> None:
    # Lines differ in dashes and marks too, to be told apart in grey.
    style = {"linestyle": ("-", "--", "-.", ":")[number % 4], "marker": "osD^vPX*"[number % 8]}
    bins = frame[frame["low"] > 0]  # a logarithmic axis has no zero
    # The middle of a bin on the logarithmic axis.
    ax.errorbar(bins["low"] * 2**0.5, bins["R"], bins["R_se"].fillna(0), label=label, markersize=4, capsize=2, **style)
    ax.set_xscale("log", base=2)
    ax.set_xlabel("$c_i$, the user's count in training")
    ax.set_ylabel("average rank $R(i, j^*)$")
