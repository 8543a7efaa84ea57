"""A few users with what they have and what they would be recommended: numbers alone convince nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ..answers.titles import read_titles
from ..display.cards import table
from ..store.counts import Counts

if TYPE_CHECKING:
    from ..fitted import Fitted

ITEMS = 6  # of each list
SEEN = 5  # seen items to name
SHARES = (0.1, 0.5, 0.99)  # of the users who have fewer pairs than the one that is shown

Name = Callable[[Any], str]


def namer(titles: Any) -> Name:
    """What an item is called on the page: its title, else its label."""
    if titles is None:
        return str
    found = read_titles(titles)
    first = found[found.columns[0]] if len(found.columns) else pd.Series(dtype=object)
    names = first.dropna().astype(str).to_dict()
    return lambda label: names.get(label, str(label))


def samples(model: Fitted, name: Name) -> Iterator[str]:
    """Recommendations for users of little, usual and much activity."""
    counts = model.counts
    yield "<h2>Sample recommendations</h2>"
    yield (
        "<p>Users with few, a usual number of and many pairs; items that they do not have, best first. p(shown) has "
        "its 90 % credible interval behind it: the fewer pairs, the wider.</p>"
    )
    yield '<div class="row">'
    for user, seen in _some_users(counts):
        top = model.recommend(counts.user_ids[user], n=ITEMS)
        rows = [
            (name(item), f"{sigma:.3f}", f"{low:.3f} to {high:.3f}")
            for item, sigma, low, high in zip(top["item"], top["sigma"], top["low"], top["high"], strict=True)
        ]
        who, has = str(counts.user_ids[user]), ", ".join(name(label) for label in seen)
        lists = table(["item", "p(shown)", "interval"], rows)
        yield f"<div><h3>{escape(who)}</h3><p>has {escape(has)}</p>{lists}</div>"
    yield "</div>"


def _some_users(counts: Counts) -> Iterator[tuple[int, list[Any]]]:
    """Users by activity, and the items that they have most of, how many there are more of at the end."""
    total = counts.marginal("users")
    order = np.argsort(total, kind="stable")
    order = order[total[order] > 0]
    for user in dict.fromkeys(int(order[int(share * (order.size - 1))]) for share in SHARES):
        block, row = divmod(user, counts.cuts["users"].block)
        tile = counts.rows("users", block)
        mine = slice(*tile.indptr[row : row + 2])
        best = np.argsort(-tile.counts[mine].astype(np.float64), kind="stable")
        seen = counts.item_ids[tile.indices[mine][best[:SEEN]]].tolist()
        more = best.size - len(seen)
        yield user, seen + ([f"{more:,} more"] if more else [])
