"""Commands about tags: ingest-tags, tags."""

from __future__ import annotations

from typing import Any

import click

from .group import Connection, reading_options, show, where_options


@click.command("ingest-tags")
@click.argument("paths", nargs=-1, required=True)
@click.argument("store")
@click.option("--symbol", default="item", show_default=True, help="Column of the symbols.")
@click.option("--tag", default="tag", show_default=True, help="Column of the tags.")
@click.option("--weight", help="Column of weights [default: each row weighs 1].")
@reading_options
@where_options
def ingest_tags(paths: tuple[str, ...], store: str, scheduler: str | None, **options: Any) -> None:
    """Turn files of (symbol, tag) links (Parquet, CSV, TSV, also .gz) into a tag store."""
    from ..pairs.tags import ingest_tags as run

    with Connection(scheduler) as client:
        click.echo(run(list(paths), store, client=client, progress=True, **options))


@click.command()
@click.argument("model")
@click.option("--side", type=click.Choice(["items", "users"]), default="items", show_default=True)
@click.option("-n", type=click.IntRange(1), default=20, show_default=True, help="Tags to show, the most telling first.")
@click.option("--output", help="All of them to a file (.parquet or .csv) instead.")
def tags(model: str, side: str, n: int, output: str | None) -> None:
    """Show what a fit has made of its tags: relevance, effect, sd, symbols."""
    from ..model import load

    found = load(model).tags(side)
    show(found if output else found.head(n), output)
