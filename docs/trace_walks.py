"""Count the hops of three walks through the code: a CSV row to its tile, one sweep, one `recommend`.

    python docs/trace_walks.py            # hops, modules and crossings of each walk
    python docs/trace_walks.py --list     # every hop too, in the order of first calls

A hop is a call from one module of the package to a function of another; each pair of calling module and called
function counts once, however often and from wherever in the module it is called. A crossing is a hop from one room to
another; rooms are those of the table in CONTRIBUTING.md. Tasks run in the caller's thread, so that they are seen;
what compiled code calls is not, nor what the threads do that write files and keep the lock alive.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType, FrameType

import dask
import numpy as np
import pandas as pd

import pairsym_dask as ps

PACKAGE = Path(ps.__file__).parent
CONTRIBUTING = Path(__file__).parents[1] / "CONTRIBUTING.md"
STORAGE_CALLS = {
    "LocalStorage.read": "reads",
    "LocalStorage.write": "writes",
    "LocalStorage.write_soon": "writes",
    "LocalStorage.put_if_absent": "writes",
    "LocalStorage.put_aside": "writes",
    "LocalStorage.read_into": "reads",
}


def rooms(contributing: Path = CONTRIBUTING) -> dict[str, list[str]]:
    """Rooms in the order of the table in CONTRIBUTING.md, the lowest last; a folder stands for all its modules."""
    rows = re.findall(r"^\| (\w+) \| (`[^|]*?)(?:: [^|]*)? \|", contributing.read_text(), re.MULTILINE)
    return {room: [name.rstrip("/") for name in re.findall(r"`([\w/]+)`", names)] for room, names in rows}


def room_of(module: str, table: dict[str, list[str]]) -> str:
    """Room of a module, given as its path inside the package without the ending."""
    for room, names in table.items():
        if module in names or module.split("/")[0] in names:
            return room
    raise KeyError(f"the table of rooms in {CONTRIBUTING} has no room for {module}")


@dataclass(frozen=True)
class Hop:
    """A module calls a function of another module."""

    caller: str
    module: str
    function: str


@dataclass(frozen=True)
class Touch:
    """A module outside the store room has an array of a store read or written."""

    module: str
    verb: str  # "reads" or "writes"
    store: str
    array: str


@dataclass
class Walk:
    """Hops that were made while a function was running (`within`: module and name), or during the whole time."""

    tracing: bool
    within: tuple[str, str] | None = None
    hops: dict[Hop, None] = field(default_factory=dict)  # in the order of first calls
    touches: dict[Touch, None] = field(default_factory=dict)
    depth: int = 0

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event not in ("call", "return") or (module := module_of(frame.f_code)) is None:
            return
        if (module, frame.f_code.co_name) == self.within:
            self.depth += 1 if event == "call" else -1
        elif event == "call" and (self.within is None or self.depth) and not is_part(frame.f_code):
            self.touch(frame)
            caller = calling_module(frame)
            if caller is not None and caller != module:
                self.hops[Hop(caller, module, frame.f_code.co_qualname)] = None

    def touch(self, frame: FrameType) -> None:
        """Take note if the call is one of a store's files."""
        verb = STORAGE_CALLS.get(frame.f_code.co_qualname)
        if verb is None or (array := array_of(frame.f_locals["key"])) is None:
            return
        above: FrameType | None = frame
        while above is not None and (module_of(above.f_code) or "store/").startswith("store/"):
            above = above.f_back
        if above is not None:
            module = module_of(above.f_code) or ""
            self.touches[Touch(module, verb, Path(frame.f_locals["self"].url).name, array)] = None

    def __enter__(self) -> Walk:
        if self.tracing:
            sys.setprofile(self)
        return self

    def __exit__(self, *exception: object) -> None:
        sys.setprofile(None)

    def modules(self) -> set[str]:
        return {hop.caller for hop in self.hops} | {hop.module for hop in self.hops}

    def crossings(self, table: dict[str, list[str]]) -> list[Hop]:
        return [hop for hop in self.hops if room_of(hop.caller, table) != room_of(hop.module, table)]


def module_of(code: CodeType) -> str | None:
    """Path of a code object's module inside the package, without its ending."""
    return module_of_file(code.co_filename)


@cache
def module_of_file(name: str) -> str | None:
    path = Path(name)
    return str(path.relative_to(PACKAGE).with_suffix("")) if path.is_relative_to(PACKAGE) else None


def array_of(key: str) -> str | None:
    """What a file of a store belongs to: an array's path, `commits`, `scratch`; None for metadata and the lock."""
    key = re.sub(r"^generation-[^/]+/", "", key)
    if key.startswith(("lock", "attempt")) or key.endswith(("zarr.json", "receipt")):
        return None
    if "scratch" in key or key.startswith("commits"):
        return "scratch" if "scratch" in key else "commits"
    return re.sub(r"/c[./].*$", "", key)


def is_part(code: CodeType) -> bool:
    """Whether it is a part of a function (a comprehension, a generator) or the body of a module or class."""
    return code.co_name.startswith("<") and code.co_name != "<lambda>"


def calling_module(frame: FrameType) -> str | None:
    """The nearest module of the package above a call, whatever libraries do in between; None while it is imported."""
    above = frame.f_back
    while above is not None and module_of(above.f_code) is None:
        above = above.f_back
    return module_of(above.f_code) if above is not None and above.f_code.co_name != "<module>" else None


def trace(folder: Path) -> dict[str, Walk]:
    """The three walks over some pairs, by name."""
    for name in ("before", "traced"):  # what is compiled and imported the first time is no part of a walk
        (folder / name).mkdir()
        walks = trace_once(folder / name, tracing=name == "traced")
    return walks


def trace_once(folder: Path, tracing: bool) -> dict[str, Walk]:
    rng = np.random.default_rng(0)
    plays = pd.DataFrame({"user": rng.integers(0, 3000, 40_000), "item": rng.integers(0, 500, 40_000)})
    plays.to_csv(folder / "plays.csv", index=False)
    fit = "sweep/fit" if (PACKAGE / "sweep").is_dir() else "fit"
    with dask.config.set(scheduler="sync"):
        with Walk(tracing) as row:
            counts = ps.ingest(folder / "plays.csv", folder / "plays.zarr")
        # Given by name: the selection of the paper's practical variant, whatever the defaults are.
        settings = ps.PairedSymbols(factors=8, selection="constant")
        model = settings.fit(counts, folder / "model.zarr", sweeps=1, progress=False)
        with Walk(tracing, within=(fit, "sweep")) as sweep:
            model.fit(counts, folder / "model.zarr", sweeps=2, progress=False)
        model = ps.load(folder / "model.zarr")
        with Walk(tracing) as answer:
            model.recommend(int(plays["user"][0]))
    return {"a CSV row to its tile": row, "one sweep": sweep, "a recommend": answer}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--list", action="store_true", help="every hop too")
    arguments = parser.parse_args()
    table = rooms()
    with tempfile.TemporaryDirectory() as folder:
        walks = trace(Path(folder))
    for name, walk in walks.items():
        counted = f"{len(walk.hops)} hops, {len(walk.modules())} modules, {len(walk.crossings(table))} crossings"
        print(f"{name}: {counted}")
        for hop in walk.hops if arguments.list else ():
            print(f"    {hop.caller} -> {hop.module}: {hop.function}")
        for touch in walk.touches if arguments.list else ():
            print(f"    {touch.module} {touch.verb} {touch.store}: {touch.array}")


if __name__ == "__main__":
    main()
