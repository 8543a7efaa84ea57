"""One committed sweep of a model: its record, its arrays, and where its counts are."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..errors import StoreError
from ..settings import SIDES, Settings
from .arrays import ArraySpec, Sealed
from .records import CommitRecord, TagsAddress, selected_names
from .sharded import AT_ONCE, read_manifest
from .shards import Shards
from .storage import Storage, is_local

TAGS = 16_384  # rows a chunk of the tags' arrays
BUCKETS = ("s3", "s3a", "gs", "gcs")  # kinds of places whose addresses name a bucket, not a host


def generation_arrays(
    rows: dict[str, int], blocks: dict[str, int], settings: Settings, tags: dict[str, int] | None = None
) -> dict[str, ArraySpec]:
    """Arrays of a generation by path; a block of rows is one chunk of each. `tags` is their number by side."""
    if settings.inference == "gibbs":
        specs = _draw_arrays(rows, blocks, settings)
        for side, number in (tags or {}).items():
            specs |= _drawn_tag_arrays(f"{side[:-1]}_tag", number + 1, settings)
        return specs
    specs = {}
    for side in SIDES:
        n, block, name = rows[side], blocks[side], side[:-1]
        for array, domain in (("mean", "finite"), ("precision", "above 0")):
            shape, chunks, names = (n, settings.factors), (block, settings.factors), (name, "factor")
            path = f"{side}/{array}"
            specs[path] = ArraySpec(path, shape, chunks, settings.dtype, names, domain=domain)
        for array, dtype, domain in (
            ("bias", settings.dtype, "finite"),
            ("bias_precision", settings.dtype, "above 0"),  # infinite without biases
            ("selection", "float64", "finite and above 0"),
            ("background", "float64", "finite and not below 0"),
        ):
            path = f"{side}/{array}"
            specs[path] = ArraySpec(path, (n,), (block,), dtype, (name,), domain=domain)
    # log s_i of the next sweep, up to its normaliser: a by-product of the selection pass.
    specs["users/next"] = ArraySpec(
        "users/next", (rows["users"],), (blocks["users"],), "float64", ("user",), domain="below infinity"
    )
    for side, number in (tags or {}).items():
        specs |= _tag_arrays(f"{side[:-1]}_tag", number + 1, settings)
    return specs


def _tag_arrays(name: str, number: int, settings: Settings) -> dict[str, ArraySpec]:
    """Arrays of one side's tags, the level last: q of their effects on traits and biases, and gamma."""
    block, specs = min(number, TAGS), {}
    shape, chunks = (number, settings.factors), (block, settings.factors)
    mean = ArraySpec(f"{name}s/mean", shape, chunks, settings.dtype, (name, "factor"), domain="finite")
    specs[mean.path] = mean
    for array, domain in (
        ("precision", "finite and above 0"),
        ("bias", "finite"),
        ("bias_precision", "above 0"),  # infinite without biases
        ("gamma", "finite and above 0"),
    ):
        path = f"{name}s/{array}"
        specs[path] = ArraySpec(path, (number,), (block,), "float64", (name,), domain=domain)
    return specs


def _draw_arrays(rows: dict[str, int], blocks: dict[str, int], settings: Settings) -> dict[str, ArraySpec]:
    """Arrays of one draw; `selection` holds Gamma numbers that make pi or psi once divided by their sum."""
    specs = {}
    for side in SIDES:
        n, block, name = rows[side], blocks[side], side[:-1]
        traits, bias, selection = (f"{side}/{array}" for array in ("traits", "bias", "selection"))
        shape, chunks = (n, settings.factors), (block, settings.factors)
        specs[traits] = ArraySpec(traits, shape, chunks, settings.dtype, (name, "factor"), domain="finite")
        specs[bias] = ArraySpec(bias, (n,), (block,), settings.dtype, (name,), domain="finite")
        more, kinds = ((settings.components,), ("component",)) if settings.components > 1 else ((), ())
        specs[selection] = ArraySpec(
            selection, (n, *more), (block, *more), "float64", (name, *kinds), domain="finite and above 0"
        )
    return specs


def _drawn_tag_arrays(name: str, number: int, settings: Settings) -> dict[str, ArraySpec]:
    """Arrays of one draw of a side's tags, the level last: effects on traits and biases, and gamma."""
    block = min(number, TAGS)
    shape, chunks = (number, settings.factors), (block, settings.factors)
    return {
        spec.path: spec
        for spec in (
            ArraySpec(f"{name}s/traits", shape, chunks, settings.dtype, (name, "factor"), domain="finite"),
            ArraySpec(f"{name}s/bias", (number,), (block,), "float64", (name,), domain="finite"),
            ArraySpec(f"{name}s/gamma", (number,), (block,), "float64", (name,), domain="finite and above 0"),
        )
    }


@dataclass(frozen=True)
class Commit:
    """One committed sweep."""

    storage: Storage
    record: CommitRecord

    @cached_property
    def sweep(self) -> int:
        return self.record["sweep"]

    @property
    def kept(self) -> bool:
        """Whether the user asked to keep this sweep for good."""
        return self.record["kept"]

    @cached_property
    def settings(self) -> Settings:
        return Settings.from_record(self.record["settings"])

    @cached_property
    def folder(self) -> str:
        return self.record["generation"]

    @property
    def nbytes(self) -> int:
        """Bytes of the generation's files."""
        listed = sum(size for size, _ in self.record["files"].values())
        return listed if self.shards is None else listed + self.shards.nbytes

    @property
    def counts_address(self) -> str:
        """Where the model remembers its counts store; an error when opening that would call somewhere else.

        A path is taken from the folder of the model store; a URL only of the model's own kind, and of its own host
        where a URL names hosts. Anything else a person has to ask for.
        """
        return self._nearby(self.record["counts"]["path"], "a counts store", "counts")

    @property
    def tags(self) -> dict[str, TagsAddress]:
        """The tag stores of the fit, by side; of a fit without tags none."""
        return self.record.get("tags", {})

    def tags_address(self, side: str) -> str:
        """Where the model remembers the tag store of a side, as `counts_address`."""
        return self._nearby(self.tags[side]["path"], "a tag store", f"{side[:-1]}_tags")

    def check_tags(self, side: str, digest: str, path: str) -> None:
        """Refuse a tag store that this sweep was not fitted with."""
        if digest != self.tags[side]["digest"]:
            raise StoreError(f"{path} is not the store of {side[:-1]} tags that {self.storage.url} was fitted with")

    def _nearby(self, path: str, what: str, option: str) -> str:
        url = self.storage.url
        if is_local(path):
            return os.path.normpath(os.path.join(os.path.dirname(url), path)) if is_local(url) else path
        (kind, rest), (own, mine) = path.split("://", 1), url.split("://", 1) if not is_local(url) else ("", "")
        if "::" in path or kind != own or (kind not in BUCKETS and rest.partition("/")[0] != mine.partition("/")[0]):
            raise StoreError(
                f"{url} remembers {what} at {path!r}, another kind of place than its own, which is not opened "
                f"unasked; give its place with {option}="
            )
        return path

    def check_counts(self, digest: str, shape: tuple[int, int], path: str) -> None:
        """Refuse a counts store that this sweep was not fitted to; its rows are followed into the sweep's arrays."""
        if digest != self.record["counts"]["digest"] or dict(zip(SIDES, shape, strict=True)) != self.record["rows"]:
            raise StoreError(f"{path} is not the counts store that {self.storage.url} was fitted to")

    def scalar(self, name: str) -> float:
        return float.fromhex(self.record["scalars"][name])

    def selected(self, side: str) -> np.ndarray:
        """Of a chain: what a side's Gamma numbers of selection sum to, by component."""
        return np.array([self.scalar(name) for name in selected_names(side, self.settings.components)])

    def normaliser(self, side: str) -> np.ndarray:
        """What they are divided by: the users' by the sum over all components, the items' by that of each."""
        selected = self.selected(side)
        return np.full(selected.size, selected.sum()) if side == "users" else selected

    @cached_property
    def sealed(self) -> Sealed:
        """The arrays; every chunk is in the manifest with the size that its array declares."""
        if self.shards is not None:
            return read_manifest(self.storage, self.folder, self.record["files"], self.shards)
        sealed = Sealed(self.storage, self.folder, self.record["files"])
        specs = self.arrays.values()
        sealed.check_complete(((spec, key) for spec in specs for key in spec.keys()), sum(spec.count for spec in specs))
        return sealed

    @cached_property
    def shards(self) -> Shards | None:
        """Where the chunks lie, None where each is a file."""
        where = f"sweep {self.sweep} of {self.storage.url}"
        return Shards.of(self.arrays, self.record["shards"], where) if "shards" in self.record else None

    @cached_property
    def arrays(self) -> dict[str, ArraySpec]:
        tags = {side: found["tags"] for side, found in self.tags.items()}
        return generation_arrays(self.record["rows"], self.record["blocks"], self.settings, tags)


def read_rows(commit: Commit, path: str, positions: np.ndarray) -> np.ndarray:
    """Some rows of an array, reading only the chunks they lie in."""
    spec, sealed = commit.arrays[path], commit.sealed
    out = np.empty((positions.size, *spec.shape[1:]), spec.dtype)
    block = positions // spec.chunks[0]
    wanted = np.unique(block)
    step = max(1, AT_ONCE // spec.chunk_bytes)
    for some in (wanted[k : k + step] for k in range(0, wanted.size, step)):
        for b, chunk in zip(some, sealed.read_several([(spec, int(b)) for b in some]), strict=True):
            here = block == b
            out[here] = chunk[positions[here] - b * spec.chunks[0]]
    return out
