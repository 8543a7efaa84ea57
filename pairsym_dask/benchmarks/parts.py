"""Pairs in three parts, train, valid and test, from a file or a download; public splits are known by their checksum."""

from __future__ import annotations

import hashlib
import os
import tempfile
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.sparse

from ..errors import InputError

PARTS = ("train", "valid", "test")
TEXTS = ("train.txt", "test.txt")
TIMEOUT = 60  # seconds of silence of a server


@dataclass(frozen=True)
class PublicSet:
    """A split that papers publish figures on."""

    about: str
    digest: str  # of the sorted pairs, see `digest_of`


SETS = {
    "gowalla": PublicSet(
        "check-ins, 29,858 users x 40,981 places; the split of the LightGCN papers",
        "273fe596cc79bb5670c9031dade59fceb4bce18d35aedb523beb758bc25d4c15",
    )
}


@dataclass(frozen=True)
class Parts:
    """Three sets of pairs over the same symbols, as matrices users x items, and the checksum of the split."""

    name: str
    matrices: dict[str, scipy.sparse.csr_matrix]
    digest: str

    @staticmethod
    def read(name: str, source: str | os.PathLike[str] | None = None, random_state: int = 0) -> Parts:
        """A public set by name, its pairs from `source`; or any file with columns user, item and part."""
        if source is None and name in SETS:
            raise InputError(
                f"{name} is not part of this package: say with source= (--source) where its pairs are, a file with "
                f"columns user, item and part ({', '.join(PARTS)}) or an address or folder of {' and '.join(TEXTS)}"
            )
        frame = read_pairs(name if source is None else source)
        digest = digest_of(frame)
        if name in SETS and digest != SETS[name].digest:
            raise InputError(
                f"{source} is not the public split of {name}: the checksum of its sorted pairs is {digest[:16]}..., "
                f"not {SETS[name].digest[:16]}...; give it without the name {name} to run on it as it is"
            )
        if not (frame["part"] == "valid").any():
            frame = cut_valid(frame, random_state)
        user, item = (pd.factorize(frame[column], sort=True)[0] for column in ("user", "item"))
        shape = (int(user.max()) + 1, int(item.max()) + 1)
        matrices = {}
        for part in PARTS:
            here = (frame["part"] == part).to_numpy()
            if not here.any():
                raise InputError(f"{name if source is None else source} has no pair of the part {part!r}")
            matrices[part] = scipy.sparse.csr_matrix((np.ones(here.sum()), (user[here], item[here])), shape)
        return Parts(Path(name).stem if source is None else name, matrices, digest)

    def held_out(self, part: str, users: int | None = None, random_state: int = 0) -> pd.DataFrame:
        """Distinct pairs of a part, of all its users or of so many, drawn at random."""
        matrix = self.matrices[part].tocoo()
        frame = pd.DataFrame({"user": matrix.row, "item": matrix.col})
        everyone = frame["user"].unique()
        if users is not None and len(everyone) > users:
            chosen = np.random.default_rng(random_state).choice(everyone, users, replace=False)
            frame = frame[frame["user"].isin(chosen)].reset_index(drop=True)
        return frame


def digest_of(frame: pd.DataFrame) -> str:
    """SHA-256 of the distinct pairs, sorted, with a mark for those of the test part."""
    test = frame["part"] == "test"
    if all(pd.api.types.is_integer_dtype(frame[name]) for name in ("user", "item")):
        rows = np.unique(np.column_stack([frame["user"], frame["item"], test]).astype("<i8"), axis=0).tobytes()
    else:
        words = {f"{user}\t{item}\t{mark}" for user, item, mark in zip(frame["user"], frame["item"], test, strict=True)}
        rows = "\n".join(sorted(words)).encode()
    return hashlib.sha256(rows).hexdigest()


def read_pairs(source: str | os.PathLike[str]) -> pd.DataFrame:
    """Columns user, item, part of a file, or of a folder or address of train.txt and test.txt."""
    text = str(source)
    if "://" in text:
        with tempfile.TemporaryDirectory(prefix="pairsym-download-") as folder:
            for name in TEXTS:
                _download(f"{text.rstrip('/')}/{name}", Path(folder) / name)
            return _read_texts(Path(folder))
    path = Path(text)
    if path.is_dir():
        return _read_texts(path)
    if not path.is_file():
        raise InputError(f"there is no file {text}; a benchmark is a public set ({', '.join(SETS)}) or a file of pairs")
    if text.endswith(".parquet"):
        frame = pd.read_parquet(path)
    elif text.removesuffix(".gz").endswith((".csv", ".tsv")):
        frame = pd.read_csv(path, sep="\t" if ".tsv" in text else ",")
    else:
        raise InputError(f"pairs in parts come as .parquet, .csv or .tsv, not {text!r}")
    missing = [name for name in ("user", "item", "part") if name not in frame]
    if missing:
        there = ", ".join(map(str, frame.columns))
        raise InputError(f"{text} lacks the column {' and '.join(missing)}; its columns are {there}")
    frame = frame[["user", "item", "part"]]
    if frame.isna().any(axis=None):
        raise InputError(f"{text} has an empty cell in row {int(frame.isna().any(axis=1).to_numpy().argmax())}")
    frame = frame.astype({"part": str})
    wrong = sorted(set(frame["part"]) - set(PARTS))
    if wrong:
        raise InputError(f"{text} has a part {wrong[0]!r}; parts are {', '.join(PARTS)}")
    return frame


def _read_texts(folder: Path) -> pd.DataFrame:
    """Lines "user item item ..." of two files."""
    found = []
    for name in TEXTS:
        if not (folder / name).is_file():
            raise InputError(f"the folder {folder} has no {name}")
        for number, line in enumerate((folder / name).read_text().splitlines(), 1):
            try:
                user, *items = map(int, line.split())
            except ValueError:
                if line.split():
                    raise InputError(f"line {number} of {name} is not a user and items in whole numbers") from None
                continue
            found.append(pd.DataFrame({"user": user, "item": items, "part": name.removesuffix(".txt")}))
    if not found:
        raise InputError(f"{' and '.join(TEXTS)} hold no pairs")
    return pd.concat(found, ignore_index=True).astype({"item": np.int64})


def _download(address: str, path: Path) -> None:
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT) as answer, path.open("wb") as file:
            while piece := answer.read(2**20):
                file.write(piece)
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise InputError(f"{address} cannot be downloaded: {error}") from None


def cut_valid(frame: pd.DataFrame, random_state: int) -> pd.DataFrame:
    """A ninth of each user's training pairs, rounded down, becomes the validation part, drawn at random."""
    train = frame[frame["part"] == "train"].sort_values(["user", "item"], kind="stable")
    lot = pd.Series(np.random.default_rng(random_state).random(len(train)), index=train.index)
    by_user = lot.groupby(train["user"])
    valid = by_user.rank(method="first") <= by_user.transform("size") // 9
    return frame.assign(part=frame["part"].mask(valid.reindex(frame.index, fill_value=False), "valid"))
