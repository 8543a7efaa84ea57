"""The `pairsym` command: the same words as the Python face, errors in one sentence and exit code 2."""

from __future__ import annotations

import sys
from dataclasses import fields
from typing import Any

import click

from . import __version__
from .settings import POPULARITY, GivenSettings


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
        pairsym.main(standalone_mode=False)
    except click.exceptions.Abort:
        _stop("interrupted; what was committed is kept", 130)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except KeyboardInterrupt:
        _stop("interrupted; what was committed is kept", 130)
    except BrokenPipeError:
        sys.exit(0)
    except Exception as error:
        from .errors import PairsymError

        if isinstance(error, (PairsymError, OSError)):
            _stop(" ".join(str(error).split()), 2)
        raise


def _stop(message: str, code: int) -> None:
    click.echo(f"pairsym: {message}", err=True)
    sys.exit(code)


def _where(function: Any) -> Any:
    """Options that say where tasks run and with how much memory."""
    for option in (
        click.option("--threads", type=click.IntRange(1), help="Tasks under way at a time [default: all cores]."),
        click.option("--memory", metavar="SIZE", help="Memory budget of a process, such as 2GiB."),
        click.option("--scheduler", metavar="ADDRESS", help="A dask scheduler, such as tcp://host:8786."),
    ):
        function = option(function)
    return function


class _Place:
    """A client for --scheduler, closed at the end; None without."""

    def __init__(self, address: str | None) -> None:
        self.address = address

    def __enter__(self) -> Any:
        from .run.execute import connect

        self.client = connect(self.address) if self.address else None
        return self.client

    def __exit__(self, *_: object) -> None:
        if self.client is not None:
            self.client.close(timeout=2)


@pairsym.command()
@click.argument("paths", nargs=-1, required=True)
@click.argument("store")
@click.option("--user", default="user", show_default=True, help="Column of the first symbol.")
@click.option("--item", default="item", show_default=True, help="Column of the second symbol.")
@click.option("--count", help="Column of counts [default: every row is one pair].")
@_where
def ingest(paths: tuple[str, ...], store: str, scheduler: str | None, **options: Any) -> None:
    """Turn files of pairs (Parquet, CSV, TSV, also .gz) into a counts store."""
    from .pairs.ingest import ingest as run

    with _Place(scheduler) as client:
        click.echo(run(list(paths), store, client=client, progress=True, **options))


def _settings(function: Any) -> Any:
    """An option for every setting of a model."""
    kinds = {"int": int, "float": float, "str": str}
    for setting in reversed(fields(GivenSettings)):
        word, choices = setting.name.replace("_", "-"), setting.metadata["choices"]
        flag = setting.type == "bool"
        option = click.option(
            f"--{word}/--no-{word}" if flag else f"--{word}",
            type=None if flag else click.Choice(choices) if choices else kinds[str(setting.type)],
            default=setting.default,
            show_default=True,
            help=setting.metadata["meaning"],
        )
        function = option(function)
    return function


@pairsym.command()
@click.argument("counts")
@click.argument("model")
@click.option("--sweeps", type=int, default=20, show_default=True, help="Sweeps in total.")
@click.option("--tol", type=float, help="Stop when the bound's relative change is within this.")
@click.option("--keep", type=click.IntRange(1), help="Keep every so many sweeps [default: the last two only].")
@click.option("--discard-damaged", is_flag=True, help="Set damaged sweeps aside and go on from the last sound one.")
@_settings
@_where
def fit(
    counts: str,
    model: str,
    sweeps: int,
    tol: float | None,
    keep: int | None,
    discard_damaged: bool,
    scheduler: str | None,
    memory: str | None,
    threads: int | None,
    **settings: Any,
) -> None:
    """Fit the model to a counts store; run it again to go on after an interruption."""
    from .model import PairedSymbols

    with _Place(scheduler) as client:
        fitted = PairedSymbols(**settings).fit(
            counts, model, sweeps=sweeps, tol=tol, keep=keep, discard_damaged=discard_damaged, memory=memory,
            client=client, threads=threads, progress=True,
        )  # fmt: skip
    click.echo(f"{model}: sweep {fitted.history['sweep'].iloc[-1]}, bound {fitted.history['elbo'].iloc[-1]:.10g}")


@pairsym.command()
@click.argument("model")
@click.argument("paths", nargs=-1, required=True)
@click.option("--counts", required=True, metavar="STORE", help="New counts store: the model's pairs and the new ones.")
@click.option("--model", "target", required=True, metavar="STORE", help="New model store.")
@click.option("--user", default="user", show_default=True, help="Column of the first symbol.")
@click.option("--item", default="item", show_default=True, help="Column of the second symbol.")
@click.option("--count", help="Column of counts [default: every row is one pair].")
@click.option("--sweeps", type=int, default=3, show_default=True, help="Sweeps in total.")
@click.option("--tol", type=float, help="Stop when the bound's relative change is within this.")
@click.option("--keep", type=click.IntRange(1), help="Keep every so many sweeps [default: the last two only].")
@_where
def update(model: str, paths: tuple[str, ...], counts: str, target: str, scheduler: str | None, **options: Any) -> None:
    """Fit to more files of pairs from where MODEL stands; run it again to go on after an interruption."""
    from .model import load

    with _Place(scheduler) as client:
        fitted = load(model).update(list(paths), counts, target, client=client, progress=True, **options)
    click.echo(f"{fitted.counts}")
    click.echo(f"{target}: sweep {fitted.history['sweep'].iloc[-1]}, bound {fitted.history['elbo'].iloc[-1]:.10g}")


@pairsym.command()
@click.argument("model")
@click.argument("users", nargs=-1)
@click.option("-n", "n", type=int, default=10, show_default=True, help="Items a user.")
@click.option("--popularity", type=float, default=POPULARITY, show_default=True, help="0 taste alone, 1 the paper's.")
@click.option("--include-seen", is_flag=True, help="Also items that the user has already.")
@click.option("--items", multiple=True, metavar="ITEM", help="A candidate; give it again for more [default: all].")
@click.option("--exclude", multiple=True, metavar="ITEM", help="An item to leave out; give it again for more.")
@click.option("--strategy", default="mean", show_default=True, help="mean, thompson (a draw) or ucb (upper bound).")
@click.option("--random-state", type=int, default=0, show_default=True, help="Seed of thompson.")
@click.option(
    "--interval", type=float, default=0.9, show_default=True, help="Share held by low to high; high ranks ucb."
)
@click.option("--all", "everyone", is_flag=True, help="Every user, to the file given by --output.")
@click.option("--output", metavar="FILE", help="Write the table: .parquet or .csv.")
def recommend(
    model: str,
    users: tuple[str, ...],
    include_seen: bool,
    items: tuple[str, ...],
    exclude: tuple[str, ...],
    everyone: bool,
    output: str | None,
    **options: Any,
) -> None:
    """Rank unseen items for users."""
    from .model import load

    opened = load(model)
    options["exclude_seen"] = not include_seen
    for name, texts in (("items", items), ("exclude", exclude)):
        options[name] = typed_labels(opened.counts, "items", texts) if texts else None
    if everyone:
        if not output or users:
            raise click.UsageError("--all goes with --output FILE and without users")
        opened.recommend_all(output, progress=True, **options)
        return
    if not users:
        raise click.UsageError("name at least one user, or give --all and --output")
    _show(opened.recommend(typed_labels(opened.counts, "users", users), **options), output)


@pairsym.command()
@click.argument("model")
@click.argument("label")
@click.option("-n", "n", type=int, default=10, show_default=True, help="How many.")
@click.option("--users", is_flag=True, help="LABEL is a user: find users [default: items].")
@click.option("--measure", default="cosine", show_default=True, help="cosine of traits, or model: of energies.")
@click.option("--output", metavar="FILE", help="Write the table: .parquet or .csv.")
def similar(model: str, label: str, users: bool, output: str | None, **options: Any) -> None:
    """Find the items most like an item, or the users most like a user."""
    from .model import load

    opened = load(model)
    (wanted,) = typed_labels(opened.counts, "users" if users else "items", [label])
    _show((opened.similar_users if users else opened.similar_items)(wanted, **options), output)


def typed_labels(counts: Any, side: str, texts: Any) -> list[Any]:
    """Words of a command line as the store's labels: whole numbers where the store's labels are."""
    from .errors import InputError

    if counts.record["labels"][side] != "int64":
        return list(texts)
    try:
        return [int(text) for text in texts]
    except ValueError:
        wrong = next(text for text in texts if not text.lstrip("+-").isdigit())
        raise InputError(f"unknown {side[:-1]} label: {wrong}; the store's {side} are whole numbers") from None


def _show(table: Any, output: str | None) -> None:
    if output is None:
        click.echo(table.to_string(index=False, float_format=lambda x: f"{x:.4g}"))
    elif _check_output(output).endswith(".parquet"):
        table.to_parquet(output, index=False)
    else:
        table.to_csv(output, index=False)


def _check_output(path: str) -> str:
    if not path.endswith((".parquet", ".csv")):
        raise click.UsageError(f"a table is written as .parquet or .csv, not {path!r}")
    return path


@pairsym.command()
@click.argument("counts")
@click.argument("train")
@click.argument("held_out")
@click.option("--fraction", type=float, help="Hold out this share of the pairs [default: one of each user].")
@click.option("--random-state", type=int, default=0, show_default=True, help="Seed.")
@_where
def split(
    counts: str, train: str, held_out: str, fraction: float | None, scheduler: str | None, **options: Any
) -> None:
    """Hold pairs out: a training store, and a table of held-out pairs (.parquet or .csv)."""
    from .pairs.splits import leave_one_out, split_by_fraction

    _check_output(held_out)
    with _Place(scheduler) as client:
        if fraction is None:
            store, table = leave_one_out(counts, train, client=client, **options)
        else:
            store, table = split_by_fraction(counts, train, fraction, client=client, **options)
    _show(table, held_out)
    click.echo(f"{store}\n{len(table):,} held-out pairs in {held_out}")


def _judging(function: Any) -> Any:
    """Options of an evaluation."""
    for option in reversed(
        (
            click.option(
                "-n",
                "n",
                type=int,
                multiple=True,
                default=[10],
                show_default=True,
                help="Length of the lists; give it again for more lengths.",
            ),
            click.option("--user", default="user", show_default=True, help="Column of the first symbol."),
            click.option("--item", default="item", show_default=True, help="Column of the second symbol."),
            click.option(
                "--unknown",
                type=click.Choice(["error", "skip"]),
                default="error",
                show_default=True,
                help="What to do with pairs whose symbols the training store does not know.",
            ),
        )
    ):
        function = option(function)
    return function


@pairsym.command()
@click.argument("model")
@click.argument("held_out")
@click.option("--popularity", type=float, default=POPULARITY, show_default=True, help="0 taste alone, 1 the paper's.")
@_judging
@_where
def evaluate(model: str, held_out: str, n: tuple[int, ...], scheduler: str | None, **options: Any) -> None:
    """Rank held-out pairs: the paper's R by activity of the user, recall, NDCG, MAP, MRR, log-likelihood."""
    from .evaluation.evaluate import evaluate as run
    from .model import load

    opened = load(model)
    with _Place(scheduler) as client:
        pairs = _read_pairs(opened, held_out, options["user"], options["item"])
        click.echo(run(opened, pairs, n=n, client=client, **options))


@pairsym.command()
@click.argument("models", nargs=-1, required=True)
@click.argument("held_out")
@click.option("--popularity", type=float, default=POPULARITY, show_default=True, help="0 taste alone, 1 the paper's.")
@_judging
@_where
def compare(models: tuple[str, ...], held_out: str, n: tuple[int, ...], scheduler: str | None, **options: Any) -> None:
    """Evaluate models, and popularity, on the same held-out pairs, with intervals of the differences."""
    from .baselines import Popularity
    from .evaluation.evaluate import compare as run
    from .model import load

    opened = {path: load(path) for path in models}
    first = next(iter(opened.values()))
    with _Place(scheduler) as client:
        pairs = _read_pairs(first, held_out, options["user"], options["item"])
        click.echo(run({**opened, "popularity": Popularity().fit(first.counts)}, pairs, n=n, client=client, **options))


def _read_pairs(model: Any, path: str, user: str = "user", item: str = "item") -> Any:
    """A table of held-out pairs, its labels as the model's."""
    import pandas as pd

    from .errors import InputError

    if not path.endswith((".parquet", ".csv")):
        raise click.UsageError(f"held-out pairs come as .parquet or .csv, not {path!r}")
    table = pd.read_parquet(path) if path.endswith(".parquet") else pd.read_csv(path, dtype=str)
    for side, name in (("users", user), ("items", item)):
        if name not in table:
            raise InputError(f"{path} has no column {name!r}; it has {', '.join(map(str, table.columns))}")
        if path.endswith(".csv"):
            table[name] = typed_labels(model.counts, side, table[name])
    return table


@pairsym.command()
@click.argument("counts")
@click.option("--metric", default="ndcg@10", show_default=True, help="ndcg@10, rank or log_likelihood.")
@click.option("--candidates", type=int, default=12, show_default=True, help="Settings to try.")
@click.option("--random-state", type=int, default=0, show_default=True, help="Seed.")
@_where
def tune(counts: str, scheduler: str | None, **options: Any) -> None:
    """Look for settings by held-out pairs of a training store."""
    from .evaluation.tune import tune as run

    with _Place(scheduler) as client:
        click.echo(run(counts, client=client, progress=True, **options))


@pairsym.command()
@click.argument("model")
@click.option("-o", "--output", metavar="FILE", default="report.html", show_default=True, help="The page to write.")
@click.option("--held-out", metavar="FILE", help="Held-out pairs (.parquet or .csv): adds an evaluation to the page.")
@click.option("--counts", metavar="STORE", help="Where the counts store is, if it has moved.")
def report(model: str, output: str, held_out: str | None, counts: str | None) -> None:
    """Write one HTML page about a fitted model, or one being fitted: data, bound, tastes, uncertainty."""
    from .baselines import Popularity
    from .evaluation.evaluate import compare as run
    from .model import load

    opened, evaluation = load(model, counts), None
    if held_out is not None:
        models = {"this model": opened, "popularity": Popularity().fit(opened.counts)}
        evaluation = run(models, _read_pairs(opened, held_out))
    opened.report(output, evaluation)
    click.echo(f"{output}: sweep {opened.history['sweep'].iloc[-1]} of {model}")


@pairsym.command()
@click.argument("store")
def info(store: str) -> None:
    """Say what a counts store or a model store holds."""
    from .report.info import describe

    click.echo("\n".join(describe(store)))


@pairsym.command()
@click.argument("store")
def verify(store: str) -> None:
    """Read everything in a store against its digests; exit code 3 when something is not sound."""
    from .store.verify import verify as run

    report = run(store)
    click.echo(report)
    if not report.sound:
        sys.exit(3)


@pairsym.command()
@click.argument("store")
@click.option("--preset", help="Shape of a known data set: xbox-movies, netflix45, phone-apps.")
@click.option("--scale", type=float, default=1.0, show_default=True, help="Multiplies a preset's users and pairs.")
@click.option("--users", type=int)
@click.option("--items", type=int)
@click.option("--pairs", type=int)
@click.option("--factors", type=int, default=20, show_default=True)
@click.option("--random-state", type=int, default=0, show_default=True)
@click.option("--truth", is_flag=True, help="Keep the traits and popularities that were drawn.")
@_where
def simulate(store: str, scheduler: str | None, **options: Any) -> None:
    """Draw pairs from the model's own generative process into a counts store."""
    from .pairs.simulate import simulate as run

    with _Place(scheduler) as client:
        click.echo(run(store, client=client, progress=True, **options))


@pairsym.command()
@click.option("--keep", metavar="FOLDER", help="Keep the demo's stores in this folder.")
@click.option("--sweeps", type=int, default=15, show_default=True)
def demo(keep: str | None, sweeps: int) -> None:
    """Fit Debian's package dependencies and see what is recommended (under two minutes)."""
    from .demo import run

    run(keep, sweeps)


if __name__ == "__main__":
    main()
