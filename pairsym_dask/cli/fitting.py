"""Commands that fit, and what a fit will take: plan, fit, update, tune."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import click
from click.core import ParameterSource

from ..settings import PRESETS, GivenSettings, default_words
from .group import Connection, column_options, reading_options, time_options, where_options


def setting_options(function: Any) -> Any:
    """An option for every setting of a model."""
    kinds = {"int": int, "float": float, "str": str}
    for setting in reversed(fields(GivenSettings)):
        word, choices = setting.name.replace("_", "-"), setting.metadata["choices"]
        flag = setting.type == "bool"
        option = click.option(
            f"--{word}/--no-{word}" if flag else f"--{word}",
            type=None if flag else click.Choice(choices) if choices else kinds[str(setting.type)],
            default=setting.default,
            show_default=True if setting.default is not None else default_words(setting.name),
            help=setting.metadata["meaning"],
        )
        function = option(function)
    return function


@click.command()
@click.argument("counts", required=False)
@click.option("--users", type=float, help="How many, such as 2e6.")
@click.option("--items", type=float, help="How many.")
@click.option("--pairs", type=float, help="How many distinct ones.")
@click.option("--workers", type=click.IntRange(1), help="Worker processes of a cluster [default: one process].")
@click.option("--memory", metavar="SIZE", help="Budget of a process, such as 2GiB.")
@click.option(
    "--threads", type=click.IntRange(1), help="Tasks at a time in a process [default: all cores, of a worker 1]."
)
@click.option("--sweeps", type=click.IntRange(1), default=20, show_default=True, help="Of the fit.")
@click.option("--deadline", metavar="LENGTH", help="Such as 2h: look for the cheapest cluster that makes it.")
@click.option("--measure", "measured", is_flag=True, help="Measure this machine by a small fit.")
@click.option(
    "--rate",
    "rates",
    metavar="NAME=NUMBER",
    multiple=True,
    help="A known rate: speed, task, network, read, write, call, writes.",
)
@setting_options
def plan(counts: str | None, rates: tuple[str, ...], **options: Any) -> None:
    """Say what a fit will take, on a machine or a cluster: to a store COUNTS, or to so many pairs."""
    from ..report.sizes import plan as run

    known = {}
    for rate in rates:
        name, _, number = rate.partition("=")
        try:
            known[name] = float(number)
        except ValueError:
            raise click.UsageError(f"a rate is given as NAME=NUMBER, not {rate!r}") from None
    click.echo(run(counts, rates=known, **options))


@click.command()
@click.argument("counts")
@click.argument("model")
@click.option(
    "--preset",
    type=click.Choice(list(PRESETS)),
    help="Settings that go together: those of the paper; what is given beside it counts.",
)
@click.option("--sweeps", type=int, help="Sweeps in total [default: 20, for draws 600].")
@click.option("--burn", type=int, help="Sweeps before the first draw [default: half of them].")
@click.option("--thin", type=int, help="Every so many sweeps after those is a draw [default: 5].")
@click.option("--start", metavar="MODEL", help="Fitted model of the same counts whose posterior draws start from.")
@click.option("--item-tags", metavar="TAGS", help="Tag store of the items.")
@click.option("--user-tags", metavar="TAGS", help="Tag store of the users.")
@click.option("--tol", type=float, help="Stop when the bound's relative change is within this.")
@click.option("--keep", type=click.IntRange(1), help="Keep every so many sweeps [default: the last two only].")
@click.option("--discard-damaged", is_flag=True, help="Set damaged sweeps aside and go on from the last sound one.")
@setting_options
@where_options
@click.pass_context
def fit(
    context: click.Context,
    /,
    counts: str,
    model: str,
    preset: str | None,
    sweeps: int | None,
    burn: int | None,
    thin: int | None,
    start: str | None,
    item_tags: str | None,
    user_tags: str | None,
    tol: float | None,
    keep: int | None,
    discard_damaged: bool,
    scheduler: str | None,
    memory: str | None,
    threads: int | None,
    **settings: Any,
) -> None:
    """Fit the model to a counts store; run it again to go on after an interruption."""
    from ..model import PairedSymbols, load

    for name, value in PRESETS.get(preset or "", {}).items():
        if context.get_parameter_source(name) is ParameterSource.DEFAULT:
            settings[name] = value
    with Connection(scheduler) as client:
        fitted = PairedSymbols(**settings).fit(
            counts, model, sweeps=sweeps, burn=burn, thin=thin, start=load(start) if start else None, tol=tol,
            keep=keep, discard_damaged=discard_damaged, item_tags=item_tags, user_tags=user_tags, memory=memory,
            client=client, threads=threads, progress=True,
        )  # fmt: skip
    last = _tell(model, fitted)
    if sweeps is not None and last > sweeps:
        click.echo(f"nothing was to be done: --sweeps {sweeps} is the total, and the store has more already")


def _tell(path: str, fitted: Any) -> int:
    """Say how far a fit has come; its last sweep."""
    last = fitted.history.iloc[-1]
    if fitted.inference == "gibbs":
        found = f"log p(i, j) {last['log_likelihood']:.10g}, {int(fitted.history['draw'].sum())} draws"
    else:
        found = f"bound {last['elbo']:.10g}"
    click.echo(f"{path}: sweep {int(last['sweep'])}, {found}")
    return int(last["sweep"])


@click.command()
@click.argument("model")
@click.argument("paths", nargs=-1, required=True)
@click.option("--counts", metavar="STORE", help="New counts store: the model's pairs and the new ones.")
@click.option("--model", "target", metavar="STORE", help="New model store; without both a dated version in MODEL.")
@click.option("--start", metavar="STORE", help="Of the first version: the fitted model that it starts from.")
@click.option("--keep-last", type=click.IntRange(1), help="Versions that stay; older ones go [default: all stay].")
@click.option(
    "--repeated",
    type=click.Choice(["error", "skip", "again"]),
    default="error",
    show_default=True,
    help="Of versions: files whose content was fed before.",
)
@column_options
@time_options
@reading_options
@click.option("--sweeps", type=int, help="Sweeps in total [default: 3, for draws 600].")
@click.option("--tol", type=float, help="Stop when the bound's relative change is within this.")
@click.option("--keep", type=click.IntRange(1), help="Keep every so many sweeps [default: the last two only].")
@where_options
def update(
    model: str,
    paths: tuple[str, ...],
    counts: str | None,
    target: str | None,
    start: str | None,
    keep_last: int | None,
    repeated: str,
    scheduler: str | None,
    **options: Any,
) -> None:
    """Fit to more files of pairs from where MODEL stands; run it again to go on after an interruption.

    With --counts and --model MODEL is a model store and stays as it is. Without, MODEL is a folder of dated versions,
    and the update becomes its newest one.
    """
    from ..model import load
    from ..rolling import roll
    from ..store.versions import find_version

    if (counts is None) != (target is None):
        raise click.UsageError("--counts and --model go together")
    versions: dict[str, Any] = {"start": start, "keep_last": keep_last}
    if counts is not None and (repeated != "error" or any(versions.values())):
        raise click.UsageError("--start, --keep-last and --repeated are for versions, without --counts and --model")
    with Connection(scheduler) as client:
        options |= {"client": client, "progress": True}
        if options["sweeps"] is None:
            del options["sweeps"]
        if counts is None or target is None:
            before = find_version(model)
            fitted = roll(model, list(paths), repeated=repeated, **versions, **options)
            if before is not None and fitted.path == before.model:
                click.echo("nothing new: all of it was fed before")
        else:
            fitted = load(model).update(list(paths), counts, target, **options)
    click.echo(f"{fitted.counts}")
    _tell(target or fitted.path, fitted)


@click.command()
@click.argument("counts")
@click.option("--metric", default="ndcg@10", show_default=True, help="ndcg@10, rank or log_likelihood.")
@click.option("--candidates", type=int, default=12, show_default=True, help="Settings to try.")
@click.option("--random-state", type=int, default=0, show_default=True, help="Seed.")
@where_options
def tune(counts: str, scheduler: str | None, **options: Any) -> None:
    """Look for settings by held-out pairs of a training store."""
    from ..evaluation.tune import tune as run

    with Connection(scheduler) as client:
        click.echo(run(counts, client=client, progress=True, **options))
