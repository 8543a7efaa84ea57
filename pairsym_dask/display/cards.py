"""Pieces of HTML that notebooks and the report share: tables of facts, cards, the page around a report.

Nothing here sets a background or a text colour: pieces take those of the page or notebook they are shown in.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from .charts import sparkline

_CELL = "text-align:left;padding:2px 12px 2px 0;vertical-align:top"
_RULE = "rgba(128,128,128,.35)"


def facts(rows: Mapping[str, str]) -> str:
    """A table of two columns, name and value; values are plain text."""
    return _facts({name: escape(str(value)) for name, value in rows.items()})


def _facts(rows: Mapping[str, str]) -> str:
    lines = "".join(
        f'<tr><th scope="row" style="{_CELL};white-space:nowrap">{escape(name)}</th>'
        f'<td style="{_CELL};overflow-wrap:anywhere">{value}</td></tr>'
        for name, value in rows.items()
    )
    return f'<table style="border-collapse:collapse"><tbody>{lines}</tbody></table>'


def card(title: str, rows: Mapping[str, str], bounds: Sequence[float] = ()) -> str:
    """A framed table of facts about one object, with the bounds of sweeps 1, 2, ... as a small line beside "bound"."""
    cells = {name: escape(str(value)) for name, value in rows.items()}
    if line := sparkline(bounds, bound_words(bounds)):
        cells["bound"] += f" &ensp;{line}"
    return (
        f'<div style="display:inline-block;max-width:100%;overflow-x:auto;border:1px solid {_RULE};border-radius:6px;'
        f'padding:8px 12px"><div style="font-weight:600;padding-bottom:4px">{escape(title)}</div>{_facts(cells)}</div>'
    )


def nearby(path: str) -> str:
    """A path as one would type it here: relative when it is below the current folder.

    >>> nearby("s3://bucket/plays.zarr")
    's3://bucket/plays.zarr'
    """
    here = os.path.join(os.getcwd(), "")
    return path.removeprefix(here)


def bound_words(bounds: Sequence[float], first: int = 1) -> str:
    """What the line of bounds shows, in words.

    >>> bound_words([-30.0, -20.0, -19.5])
    'bound from -30 after sweep 1 to -19.5 after sweep 3'
    """
    if not bounds:
        return ""
    last = first + len(bounds) - 1
    return f"bound from {bounds[0]:.10g} after sweep {first} to {bounds[-1]:.10g} after sweep {last}"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with a head, words left and numbers right, that scrolls in itself where the page is narrow."""
    head = "".join(f'<th scope="col" style="{_side(k, name)}">{escape(name)}</th>' for k, name in enumerate(columns))
    body = "".join(
        f"<tr>{''.join(f'<td style={_side(k, text)!r}>{escape(text)}</td>' for k, text in enumerate(row))}</tr>"
        for row in rows
    )
    return (
        '<div style="overflow-x:auto"><table style="border-collapse:collapse;font-variant-numeric:tabular-nums">'
        f'<thead style="border-bottom:1px solid {_RULE}"><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _side(column: int, text: str) -> str:
    fixed = column or len(text) < 14  # long names may take several lines
    return f"padding:2px 12px 2px 0;text-align:{'right' if column else 'left'}{';white-space:nowrap' if fixed else ''}"


_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; padding: 1rem; max-width: 80rem;
       background: Canvas; color: CanvasText; overflow-wrap: break-word; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: .5rem 0; }
h2 { font-size: 1.2rem; margin: 2rem 0 .5rem; border-bottom: 1px solid rgba(128,128,128,.35); }
h3 { font-size: 1rem; margin: 1rem 0 .25rem; }
p { max-width: 46rem; margin: .5rem 0; }
.row { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 20rem), 1fr)); gap: 1rem 2rem; }
figure { margin: .5rem 0; min-width: 0; }
figcaption { font-size: .875rem; max-width: 36rem; }
.note { border-left: 4px solid #d9730d; padding: .25rem .75rem; }
footer { margin-top: 2rem; font-size: .875rem; }
"""


def page(title: str, body: str) -> str:
    """A whole page that needs nothing else."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{escape(title)}</title><style>{_STYLE}</style></head>\n'
        f"<body>\n{body}\n</body></html>\n"
    )


def figure(chart: str, caption: str) -> str:
    return f"<figure>{chart}<figcaption>{escape(caption)}</figcaption></figure>"
