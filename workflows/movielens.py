"""MovieLens 100K: a local copy, or the public archive of GroupLens, downloaded once and checked.

`load()` looks into a folder (its argument, else the environment variable PAIRSYM_DATA, else `movielens/` here) for

- `ml-100k-ratings.parquet` and `ml-100k-titles.parquet`,
- `ml-100k/` with `u.data` and `u.item`, as unpacked from the archive,
- `ml-100k.zip`, the archive.

GroupLens asks those who use the data to read its terms: https://grouplens.org/datasets/movielens/100k/
"""

from __future__ import annotations

import hashlib
import os
import urllib.request
import zipfile
from pathlib import Path
from typing import Any

import pandas as pd

import pairsym_dask as ps

URL = "https://files.grouplens.org/datasets/movielens/ml-100k.zip"
MD5 = "0e33842e24a9c977be4e0107933c0723"  # as published beside the archive
SECONDS = 60


def load(folder: str | os.PathLike[str] | None = None, url: str = URL) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Ratings (user, item, rating, time) and titles (item, title)."""
    place = Path(folder or os.environ.get("PAIRSYM_DATA") or "movielens")
    ratings, titles = place / "ml-100k-ratings.parquet", place / "ml-100k-titles.parquet"
    if ratings.exists() and titles.exists():
        return pd.read_parquet(ratings), pd.read_parquet(titles)
    if (place / "ml-100k" / "u.data").exists():
        return _read(place / "ml-100k")
    archive = place / "ml-100k.zip"
    if not archive.exists():
        _download(url, archive)
    _check(archive)
    with zipfile.ZipFile(archive) as opened:
        return _read(zipfile.Path(opened, "ml-100k/"))


def _download(url: str, archive: Path) -> None:
    try:
        with urllib.request.urlopen(url, timeout=SECONDS) as answer:
            data = answer.read()
    except OSError as error:
        raise ps.InputError(
            f"{url} cannot be downloaded ({getattr(error, 'reason', error)}); get it elsewhere and put it at "
            f"{archive.absolute()}, or name the folder of a copy in PAIRSYM_DATA"
        ) from None
    archive.parent.mkdir(parents=True, exist_ok=True)
    partial = archive.with_suffix(".part")
    partial.write_bytes(data)
    partial.replace(archive)


def _check(archive: Path) -> None:
    found = hashlib.md5(archive.read_bytes(), usedforsecurity=False).hexdigest()
    if found != MD5:
        raise ps.InputError(f"{archive} is not MovieLens 100K: its MD5 is {found}, not {MD5}; remove it and try again")


def _read(folder: Any) -> tuple[pd.DataFrame, pd.DataFrame]:
    """u.data: user, item, rating, time with tabs; u.item: item|title|... in Latin-1."""
    with (folder / "u.data").open("rb") as file:
        ratings = pd.read_csv(file, sep="\t", names=["user", "item", "rating", "time"], dtype="int64")
    with (folder / "u.item").open("rb") as file:
        titles = pd.read_csv(
            file, sep="|", names=["item", "title"], usecols=[0, 1], encoding="latin-1", quoting=3
        )  # a title may hold quotes
    return ratings, titles
