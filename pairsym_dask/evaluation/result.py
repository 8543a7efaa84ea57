"""What an evaluation and a comparison hold, and how they show themselves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from ..display import cards as display
from ..display.charts import GREY, Axis, Chart
from ..display.plots import plot_lines
from .measures import bin_low, bin_name, exponents, names, summarise_rows

TITLES = {"hr": "HR", "recall": "recall", "ndcg": "NDCG", "map": "MAP"}


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Measures of one model on held-out pairs.

    `per_user` has a row a held-out pair: user, item, c (the user's training count), position and the pair's measures,
    each as if the pair were its user's only one; `lists` a row a user with held-out pairs: c, pairs, recall, NDCG, MAP
    and novelty of her list. `frame` has a row a bin of c, in powers of two, with means and standard errors; `overall`
    the same over all, and the lists' coverage of the catalogue. With several `cutoffs` a list's measures have a column
    for each, such as ndcg@5.
    """

    per_user: pd.DataFrame
    lists: pd.DataFrame
    cutoffs: tuple[int, ...]
    users: int  # of the training store
    whole: bool  # whether counts are whole numbers
    coverage: tuple[float, ...]  # share of the items that are in any of the lists, by cut-off
    skipped: int = 0  # pairs left out, because the training store does not know their user or item

    @staticmethod
    def join(parts: list[Evaluation]) -> Evaluation:
        """Evaluations of several splits as one: a user's rows of all splits are hers, coverage is the average."""
        first = parts[0]
        per_user, lists = (
            pd.concat([getattr(part, name) for part in parts], ignore_index=True) for name in ("per_user", "lists")
        )
        coverage = tuple(np.mean([part.coverage for part in parts], axis=0).tolist())
        skipped = sum(part.skipped for part in parts)
        return Evaluation(per_user, lists, first.cutoffs, first.users, first.whole, coverage, skipped)

    @cached_property
    def frame(self) -> pd.DataFrame:
        exponent, of_list = (exponents(part["c"].to_numpy()) for part in (self.per_user, self.lists))
        rows = []
        for e in np.unique(exponent):
            low = bin_low(e)
            measured = summarise_rows(self.per_user[exponent == e], self.lists[of_list == e], self.cutoffs)
            rows.append({"bin": bin_name(low, self.whole), "low": low, **measured})
        return pd.DataFrame(rows)

    @cached_property
    def overall(self) -> pd.Series:
        measured = summarise_rows(self.per_user, self.lists, self.cutoffs)
        measured |= dict(zip(names("coverage", self.cutoffs), self.coverage, strict=True))
        return pd.Series(measured, name="overall")

    def _table(self) -> pd.DataFrame:
        table = pd.concat([self.frame, pd.DataFrame([{"bin": "all", **self.overall}])], ignore_index=True)
        table = table.astype({"users": "int64", "pairs": "int64"})
        titles = {"bin": "c", "users": "users", "pairs": "pairs", "R": "R", "R_se": "se(R)"}
        titles |= {"mean_percentile": "percentile"}
        single = (table["users"] == table["pairs"]).all()  # one held-out item a user: recall is HR
        if single:
            del titles["pairs"]
        for measure in ("hr", "ndcg") if single else ("recall", "ndcg", "map"):
            columns = names(measure, self.cutoffs)
            titles |= {name: f"{TITLES[measure]}@{n}" for name, n in zip(columns, self.cutoffs, strict=True)}
        titles |= {"mrr": "MRR", "log_likelihood": "log p(j|i)", "perplexity": "perplexity"}
        return table[list(titles)].rename(columns=titles)

    def _caption(self) -> str:
        without = self.users - int(self.overall["users"])
        text = f"{len(self.per_user):,} held-out pairs; {without:,} of {self.users:,} users have none"
        if self.skipped:
            text += f"; {self.skipped:,} pairs of unknown users or items are left out"
        lists = [
            f"lists of {n} hold {share:.1%} of the items, {self.overall[name]:.1f} bits an item"
            for n, share, name in zip(self.cutoffs, self.coverage, names("novelty", self.cutoffs), strict=True)
        ]
        return "; ".join([text, *lists])

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
        return plot_lines(chart_of_ranks({label or "": self}), ax)


@dataclass(frozen=True, repr=False)
class Comparison:
    """Several models on the same held-out pairs, with paired bootstrap intervals of differences to the first.

    `frame` has a row a model and measure (R, recall, ndcg, log_likelihood): value, difference to the first model, and
    the ends of its 95 % interval over users.
    """

    evaluations: dict[str, Evaluation]
    frame: pd.DataFrame

    @cached_property
    def table(self) -> pd.DataFrame:
        """A row a model, a column a measure."""
        return pd.DataFrame({name: one.overall for name, one in self.evaluations.items()}).T.rename_axis("model")

    def _table(self) -> pd.DataFrame:
        first, base = next(iter(self.evaluations.items()))
        shown = zip(names("ndcg", base.cutoffs), base.cutoffs, strict=True)
        titles = {"R": "R", **{name: f"NDCG@{n}" for name, n in shown}, "log_likelihood": "log p(j|i)"}
        out = pd.DataFrame({"model": list(self.evaluations)})
        for measure, title in titles.items():
            rows = self.frame[self.frame["measure"] == measure].set_index("model").loc[list(self.evaluations)]
            out[title] = [_number(value) for value in rows["value"]]
            out[f"{title} - {first}"] = [
                "" if name == first else _interval(*rows.loc[name, ["difference", "low", "high"]])
                for name in self.evaluations
            ]
        # With one held-out item a user recall is what HR is.
        measure = "hr" if len(base.lists) == len(base.per_user) else "recall"
        for name, n in zip(names(measure, base.cutoffs), base.cutoffs, strict=True):
            out[f"{TITLES[measure]}@{n}"] = [_number(one.overall[name]) for one in self.evaluations.values()]
        return out

    def _caption(self) -> str:
        one = next(iter(self.evaluations.values()))
        without = one.users - int(one.overall["users"])
        text = f"{len(one.per_user):,} held-out pairs; {without:,} of {one.users:,} users have none"
        return f"{text}; intervals: 95 %, paired bootstrap over users"

    def __repr__(self) -> str:
        return f"{self._table().to_string(index=False)}\n{self._caption()}"

    def _repr_html_(self) -> str:
        table = self._table()
        return f"{display.table([*map(str, table)], table.to_numpy().astype(str).tolist())}<p>{self._caption()}</p>"

    def plot(self, ax: Any = None) -> Any:
        """The average rank R by the user's training count, a line a model; the axes."""
        return plot_lines(chart_of_ranks(self.evaluations), ax)


def _number(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.4f}"


def _interval(difference: float, low: float, high: float) -> str:
    return "-" if np.isnan(difference) else f"{difference:+.4f} [{low:+.4f}, {high:+.4f}]"


def _formatters(table: pd.DataFrame) -> dict[str, Any]:
    formats = {name: "{:.4f}" for name in table.columns if table[name].dtype.kind == "f"}
    formats |= {"perplexity": "{:,.1f}", "users": "{:,}", "pairs": "{:,}"}
    return {name: text.format for name, text in formats.items() if name in table}


def chart_of_ranks(evaluations: dict[str, Evaluation]) -> Chart:
    """The average rank R by the user's training count, with standard errors, a line a name."""
    chart = Chart(Axis("c_i, count of the user in training", log=True), Axis("average rank R(i, j*)"))
    for number, (name, one) in enumerate(evaluations.items()):
        bins = one.frame[one.frame["low"] > 0]  # a logarithmic axis has no zero
        middle = bins["low"] * 2**0.5  # of a bin, on the logarithmic axis
        chart.line(middle, bins["R"], name, number % GREY, dashed=number > 0, error=bins["R_se"])
    return chart
