"""Commands that judge models and stores: evaluate, compare, benchmark, report, calibrate, info, verify, pack."""

from __future__ import annotations

import sys
from dataclasses import fields
from typing import Any

import click
from click.core import ParameterSource

from ..settings import GivenSettings
from .fitting import setting_options
from .group import Connection, popularity_option, read_pairs, read_titles, titles_option, where_options


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


@click.command()
@click.argument("model")
@click.argument("held_out")
@popularity_option
@_judging
@where_options
def evaluate(model: str, held_out: str, n: tuple[int, ...], scheduler: str | None, **options: Any) -> None:
    """Rank held-out pairs: the paper's R by activity of the user, recall, NDCG, MAP, MRR, log-likelihood."""
    from ..evaluation.evaluate import evaluate as run
    from ..model import load

    opened = load(model)
    with Connection(scheduler) as client:
        pairs = read_pairs(opened, held_out, options["user"], options["item"])
        click.echo(run(opened, pairs, n=n, client=client, **options))


@click.command()
@click.argument("models", nargs=-1, required=True)
@click.argument("held_out")
@popularity_option
@_judging
@where_options
def compare(models: tuple[str, ...], held_out: str, n: tuple[int, ...], scheduler: str | None, **options: Any) -> None:
    """Evaluate models, and popularity, on the same held-out pairs, with intervals of the differences."""
    from ..baselines import Popularity
    from ..evaluation.evaluate import compare as run
    from ..model import load

    opened = {path: load(path) for path in models}
    first = next(iter(opened.values()))
    with Connection(scheduler) as client:
        pairs = read_pairs(first, held_out, options["user"], options["item"])
        click.echo(run({**opened, "popularity": Popularity().fit(first.counts)}, pairs, n=n, client=client, **options))


@click.command()
@click.argument("name")
@click.option("--source", metavar="PLACE", help="Where a public set's pairs are: a file, a folder or an address.")
@click.option("-o", "--output", metavar="FILE", help="The record, JSON [default: benchmark-NAME.json].")
@click.option("--contender", "contenders", multiple=True, help="Who takes part; give it again for more [default: all].")
@click.option("--trials", type=int, default=4, show_default=True, help="Settings that each contender is tried with.")
@click.option("--users", type=int, default=10_000, show_default=True, help="Validation users that judge a trial.")
@click.option("--metric", default="ndcg", show_default=True, help="What settings are chosen by: ndcg, recall or R.")
@click.option("--random-state", type=int, default=0, show_default=True, help="Seed.")
@click.option("--threads", type=click.IntRange(1), help="Tasks under way at a time [default: all cores].")
def benchmark(name: str, output: str | None, contenders: tuple[str, ...], **options: Any) -> None:
    """Tune contenders on the validation part of a public set (gowalla) or of a file, report them on its test part.

    A file has columns user, item and part (train, valid, test). Run it again to go on after an interruption.
    """
    from pathlib import Path

    from ..benchmarks.benchmark import benchmark as run

    record = output or f"benchmark-{Path(name).stem}.json"
    click.echo(run(name, record, contenders=contenders or None, progress=True, **options))
    click.echo(record)


@click.command()
@click.argument("model")
@click.option("-o", "--output", metavar="FILE", default="report.html", show_default=True, help="The page to write.")
@click.option("--held-out", metavar="FILE", help="Held-out pairs (.parquet or .csv): adds evaluation and calibration.")
@click.option("--counts", metavar="STORE", help="Where the counts store is, if it has moved.")
@titles_option
def report(model: str, output: str, held_out: str | None, counts: str | None, titles: str | None) -> None:
    """Write one HTML page about a fitted model, or one being fitted: data, bound, tastes, uncertainty."""
    from ..baselines import Popularity
    from ..evaluation.evaluate import compare as run
    from ..model import load
    from ..report.calibrate import calibrate as judge

    opened, evaluation, calibration = load(model, counts), None, None
    if held_out is not None:
        models = {"this model": opened, "popularity": Popularity().fit(opened.counts)}
        pairs = read_pairs(opened, held_out)
        evaluation, calibration = run(models, pairs), judge(opened, pairs)
    opened.report(output, evaluation, read_titles(opened, titles), calibration)
    click.echo(f"{output}: sweep {opened.history['sweep'].iloc[-1]} of {model}")


@click.command()
@click.argument("model", required=False)
@click.argument("held_out", required=False)
@click.option("-o", "--output", metavar="FILE", help="Also write a page with pictures.")
@click.option("--level", type=float, default=0.9, show_default=True, help="What conformal lists are to hold.")
@click.option("--truths", type=int, help="Simulated truths to fit [default: 10 without HELD_OUT, else none].")
@click.option("--users", type=int, default=200, show_default=True, help="Users of a truth.")
@click.option("--items", type=int, default=50, show_default=True, help="Items of a truth.")
@click.option("--pairs", type=int, default=6000, show_default=True, help="Pairs of a truth, about.")
@click.option("--sweeps", type=int, help="Sweeps of a fit to a truth [default: 40, for draws 400].")
@setting_options
@click.pass_context
def calibrate(
    context: click.Context,
    /,
    model: str | None,
    held_out: str | None,
    output: str | None,
    **options: Any,
) -> None:
    """Ask whether intervals hold simulated truths, and whether p(j | i) of MODEL is met by HELD_OUT pairs.

    Truths are fitted with the settings of MODEL, or with those given if there is none.
    """
    from ..model import PairedSymbols, load
    from ..report.calibrate import calibrate as run

    settings = {field.name: options.pop(field.name) for field in fields(GivenSettings)}
    random_state = settings["random_state"]
    for name in settings:
        given = context.get_parameter_source(name) is not ParameterSource.DEFAULT
        if given and model is not None and name != "random_state":
            raise click.UsageError(f"--{name.replace('_', '-')} is a setting, and MODEL has its own")
    opened = PairedSymbols(**settings) if model is None else load(model)
    pairs = None if held_out is None else read_pairs(opened, held_out)
    found = run(opened, pairs, random_state=random_state, progress=True, **options)
    click.echo(found)
    if output:
        found.report(output)
        click.echo(output)


@click.command()
@click.argument("store")
def info(store: str) -> None:
    """Say what a counts store or a model store holds."""
    from ..report.info import describe

    click.echo("\n".join(describe(store)))


@click.command()
@click.argument("store")
def verify(store: str) -> None:
    """Read everything in a store against its digests; exit code 3 when something is not sound."""
    from ..store.verify import verify as run

    report = run(store)
    click.echo(report)
    if not report.sound:
        sys.exit(3)


@click.command()
@click.argument("model")
@click.argument("folder")
@click.option("--without-seen", is_flag=True, help="Leave the users' pairs out; ask with --include-seen then.")
def pack(model: str, folder: str, without_seen: bool) -> None:
    """Copy a model, and what it needs to answer, to a FOLDER that can be carried elsewhere."""
    from ..model import load

    opened = load(model)
    opened.pack(folder, seen=not without_seen)
    click.echo(f"{folder}: sweep {opened.history['sweep'].iloc[-1]} of {model}")
