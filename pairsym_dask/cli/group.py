"""The command itself: its group, how errors end it, and what several of its commands share."""

from __future__ import annotations

import re
import sys
import warnings
from typing import Any

import click

from .. import __version__
from ..settings import POPULARITY, POPULARITY_OF_DRAWS

_OF_A_SWEEP = re.compile(r"/(commits|generation-\d+-\w+)\b")  # a path in a model store


class _Group(click.Group):
    """Commands in the order in which people need them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="pairsym")
def pairsym() -> None:
    """Bayesian modelling of paired symbols from counts, out of core, on dask."""


def main() -> None:
    """Entry point: a clear sentence for errors that a person can do something about."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            pairsym.main(standalone_mode=False)
    except click.exceptions.Abort:
        _stop("interrupted; what was committed is kept", 130)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except KeyboardInterrupt as error:
        _stop(str(error) or "interrupted; what was committed is kept", 130)
    except BrokenPipeError:
        sys.exit(0)
    except Exception as error:
        from ..errors import DamagedStoreError, PairsymError

        if isinstance(error, (PairsymError, OSError)):
            way_out = ""
            if isinstance(error, DamagedStoreError) and _OF_A_SWEEP.search(str(error)):
                way_out = (
                    "; pairsym fit --discard-damaged sets what is damaged aside and goes on from the last sound sweep"
                )
            _stop(" ".join(str(error).split()) + way_out, 2)
        raise


def _show_warning(message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None) -> None:
    """A sentence, without the line of code that it came from."""
    click.echo(f"pairsym: {message}", err=True)


def _stop(message: str, code: int) -> None:
    click.echo(f"pairsym: {message}", err=True)
    sys.exit(code)


def where_options(function: Any) -> Any:
    """Options that say where tasks run and with how much memory."""
    return with_options(
        function,
        click.option("--scheduler", metavar="ADDRESS", help="A dask scheduler, such as tcp://host:8786."),
        click.option("--memory", metavar="SIZE", help="Memory budget of a process, such as 2GiB."),
        click.option("--threads", type=click.IntRange(1), help="Tasks under way at a time [default: all cores]."),
    )


def column_options(function: Any) -> Any:
    """Options that name columns of pairs."""
    return with_options(
        function,
        click.option("--user", default="user", show_default=True, help="Column of the first symbol."),
        click.option("--item", default="item", show_default=True, help="Column of the second symbol."),
        click.option("--count", help="Column of counts [default: every row is one pair]."),
    )


def time_options(function: Any) -> Any:
    """Options of the times of events."""
    return with_options(
        function,
        click.option("--time", metavar="COLUMN", help="Column of times: dates, ISO 8601 text or seconds since 1970."),
        click.option("--half-life", metavar="LENGTH", help="Such as 30D: how old an event is that counts half."),
    )


def reading_options(function: Any) -> Any:
    """Options that say how files are read, and what becomes of rows that cannot be counted."""
    return with_options(
        function,
        click.option(
            "--invalid",
            type=click.Choice(["error", "drop"]),
            default="error",
            show_default=True,
            help="Rows without a user, an item or a count above 0: an error that lists them, or left out.",
        ),
        click.option(
            "--separator", metavar="WORD", help="comma, semicolon, tab, pipe or a character [default: found]."
        ),
        click.option("--encoding", metavar="NAME", help="Such as utf-8, utf-16, cp1252 [default: found]."),
        click.option(
            "--decimal", default=".", show_default=True, help="What stands before the decimals of counts: . or ,"
        ),
    )


def popularity_option(function: Any) -> Any:
    """The option of rankings."""
    words = f"0 taste alone, 1 the paper's [default: {POPULARITY}, of draws {POPULARITY_OF_DRAWS:g}]."
    return click.option("--popularity", type=float, help=words)(function)


def titles_option(function: Any) -> Any:
    """The option of a table of items."""
    words = "Your table of items (.csv or .parquet, with a column item): its columns are joined."
    return click.option("--titles", metavar="FILE", help=words)(function)


def with_options(function: Any, *options: Any) -> Any:
    """A command with more options, in this order."""
    for option in reversed(options):
        function = option(function)
    return function


class Connection:
    """A client for --scheduler, closed at the end; None without."""

    def __init__(self, address: str | None) -> None:
        self.address = address

    def __enter__(self) -> Any:
        from ..run.execute import connect

        self.client = connect(self.address) if self.address else None
        return self.client

    def __exit__(self, *_: object) -> None:
        if self.client is not None:
            self.client.close(timeout=2)


def typed_labels(counts: Any, side: str, texts: Any) -> list[Any]:
    """Words of a command line as the store's labels: whole numbers where the store's labels are."""
    from ..errors import InputError

    if counts.record["labels"][side] != "int64":
        return list(texts)
    try:
        return [int(text) for text in texts]
    except ValueError:
        wrong = next(text for text in texts if not text.lstrip("+-").isdigit())
        raise InputError(f"unknown {side[:-1]} label: {wrong}; the store's {side} are whole numbers") from None


def show(table: Any, output: str | None) -> None:
    """Print a table, or write it to a file."""
    if output is None:
        click.echo(table.to_string(index=False, float_format=lambda x: f"{x:.4g}"))
    elif check_output(output).endswith(".parquet"):
        table.to_parquet(output, index=False)
    else:
        table.to_csv(output, index=False)


def check_output(path: str) -> str:
    """The name of a file that a table can be written to."""
    if not path.endswith((".parquet", ".csv")):
        raise click.UsageError(f"a table is written as .parquet or .csv, not {path!r}")
    return path


def read_pairs(model: Any, path: str, user: str = "user", item: str = "item") -> Any:
    """A table of held-out pairs, its labels as the model's."""
    return read_table(model, path, users=user, items=item)


def read_titles(model: Any, path: str | None) -> Any:
    """A table of items by label, None for none."""
    return None if path is None else read_table(model, path, items="item").drop_duplicates("item")


def read_table(model: Any, path: str, **columns: str) -> Any:
    """A table with labels of users or items in columns, as the model's labels are."""
    import pandas as pd

    from ..errors import InputError

    if not path.endswith((".parquet", ".csv")):
        raise click.UsageError(f"a table comes as .parquet or .csv, not {path!r}")
    text = path.endswith(".csv")
    if text:
        from ..pairs.csv_files import find_dialect

        found = find_dialect(path, list(columns.values()))
        kept: Any = dict.fromkeys(columns.values(), str)  # as it is written: NA may be a label
        table = pd.read_csv(path, converters=kept, sep=found.separator, encoding=found.encoding, skiprows=found.above)
    else:
        table = pd.read_parquet(path)
    for side, name in columns.items():
        if name not in table:
            raise InputError(f"{path} has no column {name!r}; it has {', '.join(map(str, table.columns))}")
        if text:
            table[name] = typed_labels(model.counts, side, table[name])
    return table
