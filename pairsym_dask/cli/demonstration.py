"""`pairsym demo` and `pairsym warm-up`."""

from __future__ import annotations

import click


@click.command()
@click.option("--keep", metavar="FOLDER", help="Keep the demo's stores in this folder.")
@click.option("--sweeps", type=int, default=15, show_default=True)
def demo(keep: str | None, sweeps: int) -> None:
    """Fit Debian's package dependencies and see what is recommended (under two minutes)."""
    from ..demo import run

    run(keep, sweeps)


@click.command("warm-up")
def warm_up() -> None:
    """Compile everything once, for this machine and user: for images and servers."""
    from ..demo import warm_up as run

    click.echo("compiling whatever fits and answers need: some minutes, the first time", err=True)
    click.echo(run())
