"""Commands that make counts stores: ingest, split, simulate."""

from __future__ import annotations

from typing import Any

import click

from .group import Place, check_output, column_options, show, where_options


@click.command()
@click.argument("paths", nargs=-1, required=True)
@click.argument("store")
@column_options
@click.option(
    "--invalid",
    type=click.Choice(["error", "drop"]),
    default="error",
    show_default=True,
    help="Rows without a user, an item or a count above 0: an error that lists them, or left out.",
)
@click.option("--separator", metavar="WORD", help="comma, semicolon, tab, pipe or a character [default: found].")
@click.option("--encoding", metavar="NAME", help="Such as utf-8, utf-16, cp1252 [default: found].")
@click.option("--decimal", default=".", show_default=True, help="What stands before the decimals of counts: . or ,")
@where_options
def ingest(paths: tuple[str, ...], store: str, scheduler: str | None, **options: Any) -> None:
    """Turn files of pairs (Parquet, CSV, TSV, also .gz) into a counts store."""
    from ..pairs.ingest import ingest as run

    with Place(scheduler) as client:
        click.echo(run(list(paths), store, client=client, progress=True, **options))


@click.command()
@click.argument("counts")
@click.argument("train")
@click.argument("held_out")
@click.option("--fraction", type=float, help="Hold out this share of the pairs [default: one of each user].")
@click.option("--random-state", type=int, default=0, show_default=True, help="Seed.")
@where_options
def split(
    counts: str, train: str, held_out: str, fraction: float | None, scheduler: str | None, **options: Any
) -> None:
    """Hold pairs out: a training store, and a table of held-out pairs (.parquet or .csv)."""
    from ..pairs.splits import leave_one_out, split_by_fraction

    check_output(held_out)
    with Place(scheduler) as client:
        if fraction is None:
            store, table = leave_one_out(counts, train, client=client, **options)
        else:
            store, table = split_by_fraction(counts, train, fraction, client=client, **options)
    show(table, held_out)
    click.echo(f"{store}\n{len(table):,} held-out pairs in {held_out}")


@click.command()
@click.argument("store")
@click.option("--preset", help="Shape of a known data set: xbox-movies, netflix45, phone-apps.")
@click.option("--scale", type=float, default=1.0, show_default=True, help="Multiplies a preset's users and pairs.")
@click.option("--users", type=int)
@click.option("--items", type=int)
@click.option("--pairs", type=int)
@click.option("--factors", type=int, default=20, show_default=True)
@click.option("--random-state", type=int, default=0, show_default=True)
@click.option("--truth", is_flag=True, help="Keep the traits and popularities that were drawn.")
@where_options
def simulate(store: str, scheduler: str | None, **options: Any) -> None:
    """Draw pairs from the model's own generative process into a counts store."""
    from ..pairs.simulate import simulate as run

    with Place(scheduler) as client:
        click.echo(run(store, client=client, progress=True, **options))
