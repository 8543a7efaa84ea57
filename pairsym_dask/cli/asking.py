"""Commands that ask a fitted model: recommend, similar."""

from __future__ import annotations

from typing import Any

import click

from .group import popularity_option, show, typed_labels


@click.command()
@click.argument("model")
@click.argument("users", nargs=-1)
@click.option("-n", "n", type=int, default=10, show_default=True, help="Items a user.")
@popularity_option
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
    from ..model import load

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
    show(opened.recommend(typed_labels(opened.counts, "users", users), **options), output)


@click.command()
@click.argument("model")
@click.argument("label")
@click.option("-n", "n", type=int, default=10, show_default=True, help="How many.")
@click.option("--users", is_flag=True, help="LABEL is a user: find users [default: items].")
@click.option("--measure", default="cosine", show_default=True, help="cosine of traits, or model: of energies.")
@click.option("--output", metavar="FILE", help="Write the table: .parquet or .csv.")
def similar(model: str, label: str, users: bool, output: str | None, **options: Any) -> None:
    """Find the items most like an item, or the users most like a user."""
    from ..model import load

    opened = load(model)
    (wanted,) = typed_labels(opened.counts, "users" if users else "items", [label])
    show((opened.similar_users if users else opened.similar_items)(wanted, **options), output)
