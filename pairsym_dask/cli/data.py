"""Commands that make counts stores: ingest, split, split-by-time, simulate."""

from __future__ import annotations

from typing import Any

import click

from .group import Connection, check_output, column_options, reading_options, show, time_options, where_options


@click.command()
@click.argument("paths", nargs=-1, required=True)
@click.argument("store")
@column_options
@time_options
@click.option("--now", metavar="TIME", help="Present that ages are counted from [default: the latest time].")
@reading_options
@where_options
def ingest(paths: tuple[str, ...], store: str, scheduler: str | None, **options: Any) -> None:
    """Turn files of pairs (Parquet, CSV, TSV, also .gz) into a counts store."""
    from ..pairs.ingest import ingest as run

    with Connection(scheduler) as client:
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
    with Connection(scheduler) as client:
        if fraction is None:
            store, table = leave_one_out(counts, train, client=client, **options)
        else:
            store, table = split_by_fraction(counts, train, fraction, client=client, **options)
    show(table, held_out)
    click.echo(f"{store}\n{len(table):,} held-out pairs in {held_out}")


@click.command("split-by-time")
@click.argument("paths", nargs=-1, required=True)
@click.argument("train")
@click.argument("held_out")
@click.option("--at", metavar="TIME", help="Train on events before, such as 2024-12-31, hold out later ones.")
@click.option("--until", metavar="TIME", help="Hold out events before this [default: all].")
@click.option("--last", is_flag=True, help="Instead of --at: hold out the last pair of each user.")
@click.option("--repeats", is_flag=True, help="With --at: also later pairs that were there before.")
@click.option("--random-state", type=int, default=0, show_default=True, help="With --last: chooses among equals.")
@column_options
@time_options
@reading_options
@where_options
def split_by_time(
    paths: tuple[str, ...],
    train: str,
    held_out: str,
    at: str | None,
    until: str | None,
    last: bool,
    repeats: bool,
    random_state: int,
    time: str | None,
    scheduler: str | None,
    **options: Any,
) -> None:
    """Split files of events by time: a training store, and a table of later pairs (.parquet or .csv)."""
    from ..pairs.time_splits import leave_last_out
    from ..pairs.time_splits import split_by_time as run

    check_output(held_out)
    if last == (at is not None) or (last and (until or repeats)):
        raise click.UsageError("give --at TIME (with --until and --repeats), or --last")
    options |= {"time": time or "time", "progress": True}
    with Connection(scheduler) as client:
        if last:
            store, table = leave_last_out(list(paths), train, random_state=random_state, client=client, **options)
        else:
            store, table = run(list(paths), train, at, until=until, repeats=repeats, client=client, **options)
    show(table, held_out)
    left_out = ", ".join(f"{number:,} {word}" for word, number in table.attrs.items() if number)
    click.echo(
        f"{store}\n{len(table):,} held-out pairs in {held_out}" + (f" (left out: {left_out})" if left_out else "")
    )


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

    with Connection(scheduler) as client:
        click.echo(run(store, client=client, progress=True, **options))
