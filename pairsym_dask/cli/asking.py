"""Commands that ask a fitted model: recommend, fold-in, explain, similar."""

from __future__ import annotations

from typing import Any

import click

from .group import (
    column_options,
    popularity_option,
    read_table,
    read_titles,
    show,
    titles_option,
    typed_labels,
    with_options,
)


def _list_options(function: Any) -> Any:
    """Options of ranked lists."""
    return with_options(
        function,
        click.option("-n", "n", type=int, default=10, show_default=True, help="Items a user."),
        popularity_option,
        click.option("--include-seen", is_flag=True, help="Also items that the user has already."),
        click.option("--items", multiple=True, metavar="ITEM", help="A candidate; again for more [default: all]."),
        click.option("--exclude", multiple=True, metavar="ITEM", help="An item to leave out; again for more."),
        click.option(
            "--strategy", default="mean", show_default=True, help="mean, thompson (a draw) or ucb (upper bound)."
        ),
        click.option("--random-state", type=int, default=0, show_default=True, help="Seed of thompson."),
        click.option(
            "--interval", type=float, default=0.9, show_default=True, help="Held by low to high; high ranks ucb."
        ),
        titles_option,
        click.option("--where", multiple=True, metavar="COLUMN=VALUE", help="Candidates by a column of the titles."),
        click.option("--output", metavar="FILE", help="Write the table: .parquet or .csv."),
    )


def _ranking(
    model: Any,
    include_seen: bool,
    items: tuple[str, ...],
    exclude: tuple[str, ...],
    titles: str | None,
    where: tuple[str, ...],
) -> dict[str, Any]:
    """Options of a list as `recommend` takes them."""
    options: dict[str, Any] = {"exclude_seen": not include_seen, "titles": read_titles(model, titles), "where": None}
    for name, texts in (("items", items), ("exclude", exclude)):
        options[name] = typed_labels(model.counts, "items", texts) if texts else None
    if where:
        options["where"] = _categories(where, options["titles"])
    return options


def _categories(where: tuple[str, ...], titles: Any) -> dict[str, list[Any]]:
    """COLUMN=VALUE as values by column; several values of a column are alternatives."""
    wanted: dict[str, list[Any]] = {}
    for words in where:
        name, equals, value = words.partition("=")
        if not equals:
            raise click.UsageError(f"--where is COLUMN=VALUE, such as genre=jazz, not {words!r}")
        there = [] if titles is None or name not in titles else titles[name].unique().tolist()
        wanted.setdefault(name, []).extend([one for one in there if str(one) == value] or [value])
    return wanted


@click.command()
@click.argument("model")
@click.argument("users", nargs=-1)
@click.option("--users-from", metavar="FILE", help="Users, a line each, or in the column user of a .csv or .parquet.")
@click.option("--all", "everyone", is_flag=True, help="Every user, to the file given by --output.")
@_list_options
def recommend(
    model: str,
    users: tuple[str, ...],
    users_from: str | None,
    everyone: bool,
    include_seen: bool,
    items: tuple[str, ...],
    exclude: tuple[str, ...],
    titles: str | None,
    where: tuple[str, ...],
    output: str | None,
    **options: Any,
) -> None:
    """Rank unseen items for users."""
    from ..model import load

    opened = load(model)
    options |= _ranking(opened, include_seen, items, exclude, titles, where)
    if everyone:
        if not output or users or users_from:
            raise click.UsageError("--all goes with --output FILE and without users")
        rows = opened.recommend_all(output, progress=True, **options)
        click.echo(f"{output}: {rows:,} rows")
        return
    wanted = typed_labels(opened.counts, "users", users)
    if users_from:
        wanted += _read_users(opened, users_from)
    if not wanted:
        raise click.UsageError("name at least one user, or give --users-from FILE, or --all and --output")
    show(opened.recommend(wanted, **options), output)


def _read_users(model: Any, path: str) -> list[Any]:
    """Labels of users in a file."""
    if path.endswith((".parquet", ".csv")):
        labels: list[Any] = read_table(model, path, users="user")["user"].unique().tolist()
        return labels
    with open(path, encoding="utf-8") as file:
        return typed_labels(model.counts, "users", [line for text in file if (line := text.strip())])


@click.command("fold-in")
@click.argument("model")
@click.argument("pairs", required=False)
@click.option("--has", multiple=True, metavar="ITEM", help="An item of one new user; again for more.")
@column_options
@_list_options
def fold_in(
    model: str,
    pairs: str | None,
    has: tuple[str, ...],
    user: str,
    item: str,
    count: str | None,
    include_seen: bool,
    items: tuple[str, ...],
    exclude: tuple[str, ...],
    titles: str | None,
    where: tuple[str, ...],
    output: str | None,
    **options: Any,
) -> None:
    """Rank items for users who were not in the fit, from a file of their PAIRS (.csv or .parquet) or by --has."""
    from ..model import load

    if (pairs is None) == (not has):
        raise click.UsageError("give a file of pairs, or items of one user by --has")
    opened = load(model)
    if pairs is None:
        folded = opened.fold_in(typed_labels(opened.counts, "items", has))
    else:
        folded = opened.fold_in(read_table(opened, pairs, items=item), user, item, count)
    options |= _ranking(opened, include_seen, items, exclude, titles, where)
    show(opened.recommend(folded, **options), output)


@click.command()
@click.argument("model")
@click.argument("user")
@click.argument("item")
@click.option("-n", "n", type=int, default=10, show_default=True, help="Seen items to name.")
@click.option("--output", metavar="FILE", help="Write the table of parts: .parquet or .csv.")
def explain(model: str, user: str, item: str, n: int, output: str | None) -> None:
    """Say why an item suits a user, or does not: biases, seen items that pull, censored pairs."""
    from ..model import load

    opened = load(model)
    (who,), (what,) = (typed_labels(opened.counts, *one) for one in (("users", [user]), ("items", [item])))
    found = opened.explain(who, what, n)
    if output is None:
        click.echo(found)
    else:
        show(found.frame, output)


@click.command()
@click.argument("model")
@click.argument("label")
@click.option("-n", "n", type=int, default=10, show_default=True, help="How many.")
@click.option("--users", is_flag=True, help="LABEL is a user: find users [default: items].")
@click.option("--measure", default="cosine", show_default=True, help="cosine of traits, or model: of energies.")
@titles_option
@click.option("--output", metavar="FILE", help="Write the table: .parquet or .csv.")
def similar(model: str, label: str, users: bool, titles: str | None, output: str | None, **options: Any) -> None:
    """Find the items most like an item, or the users most like a user."""
    from ..model import load

    opened = load(model)
    (wanted,) = typed_labels(opened.counts, "users" if users else "items", [label])
    if users:
        show(opened.similar_users(wanted, **options), output)
    else:
        show(opened.similar_items(wanted, titles=read_titles(opened, titles), **options), output)
