"""The tags of a fit on the report's page: which of them say something."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..display.cards import figure, table
from ..display.charts import Axis, Chart
from ..store.commit import Commit

if TYPE_CHECKING:
    from ..fitted import Fitted

DRAWN = 3000  # tags of a picture, at most
NAMED = 10


def show_tags(model: Fitted, commit: Commit) -> Iterator[str]:
    """Relevance of tags against how many symbols have them, and the most telling ones by name."""
    for side in commit.tags:
        found = model.tags(side)
        often = found[found["symbols"] >= found["symbols"].quantile(0.75)]
        drawn = found.iloc[:: max(1, len(found) // DRAWN)]
        chart = Chart(Axis(f"{side} with the tag", log=True), Axis("relevance", low=0.0))
        chart.points(drawn["symbols"], drawn["relevance"], [str(tag) for tag in drawn["tag"]])
        named = often.head(NAMED)
        chart.names(named["symbols"], named["relevance"], [str(tag) for tag in named["tag"]], 1)
        rows = [
            (str(tag), f"{relevance:.3f}", f"{effect:.3f}", f"{symbols:,}")
            for tag, relevance, effect, _, symbols in named.itertuples(index=False)
        ]
        yield f"<h2>Tags of {side}</h2>"
        yield (
            "<p>How much is known of a tag's effects, |E[h]|^2 / E|h|^2, against how many have the tag: that of tags "
            "that say nothing, or of which little is seen, is small.</p>"
        )
        words = f"{len(found):,} tags; ringed: the most relevant among the quarter that is used most."
        yield '<div class="row">'
        yield figure(chart.svg(), words)
        yield f"<div>{table(['tag', 'relevance', 'effect', side], rows)}</div></div>"
