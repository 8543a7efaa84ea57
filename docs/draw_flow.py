"""Draw the flow of data through rooms and stores from what the traced walks touched.

python docs/trace_walks.py --list > docs/walks.txt
python docs/draw_flow.py                             # docs/walks.txt -> docs/figures/flow.png
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch
from trace_walks import room_of, rooms

HERE = Path(__file__).parent
HIDDEN = {"unfinished", "scratch"}  # of an ingest under way; nothing of it stays
ROOM, STORE, READ, WRITE = "#dce9f5", "#fdf0d5", "#3a6ea5", "#b5532a"
WIDTH = 2.25
LOWEST = -5.6  # where arrows pass below everything


@dataclass
class Walk:
    """A walk as `trace_walks.py --list` prints it."""

    name: str
    counted: str
    modules: dict[str, None] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)  # hops into a room from another
    touches: list[tuple[str, str, str, str]] = field(default_factory=list)  # room, verb, store, array


def read_walks(path: Path) -> list[Walk]:
    table, walks = rooms(), []
    for line in path.read_text().splitlines():
        if head := re.match(r"(\S.*): (\d+ hops.*)", line):
            walks.append(Walk(head[1], head[2]))
        elif hop := re.match(r"    (\S+) -> (\S+): ", line):
            walks[-1].modules |= {hop[1]: None, hop[2]: None}
            if room_of(hop[1], table) != room_of(hop[2], table):
                walks[-1].calls[room_of(hop[2], table)] += 1
        elif (touch := re.match(r"    (\S+) (reads|writes) (\S+): (\S+)", line)) and touch[4] not in HIDDEN:
            walks[-1].touches.append((room_of(touch[1], table), touch[2], touch[3], touch[4]))
    return walks


def box(axes: Axes, x: float, y: float, height: float, colour: str, title: str, lines: list[str]) -> None:
    """A box whose top left corner is (x, y)."""
    axes.add_patch(FancyBboxPatch((x, y - height), WIDTH, height, "round,pad=0.04", fc=colour, ec="#666666", lw=0.8))
    axes.text(x + 0.06, y - 0.06, title, va="top", fontsize=9, weight="bold")
    for k, line in enumerate(lines):
        axes.text(x + 0.06, y - 0.32 - 0.2 * k, line, va="top", fontsize=7.5, family="monospace")


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str) -> None:
    style = {"arrowstyle": "-|>", "color": colour, "lw": 1.6, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", end, start, arrowprops=style)


def draw_rooms(axes: Axes, walk: Walk, x: float) -> dict[str, tuple[float, float]]:
    """Rooms of a walk under each other as the table has them; the heights of their middles."""
    table = rooms()
    axes.text(x, 0.55, walk.name, fontsize=11, weight="bold")
    axes.text(x, 0.25, walk.counted, fontsize=8, color="#444444")
    middles, y = {}, 0.0
    for room in table:
        names = [module.split("/")[-1] for module in sorted(walk.modules) if room_of(module, table) == room]
        if not names:
            continue
        lines = textwrap.wrap(", ".join(names), 26)
        height = 0.36 + 0.2 * len(lines)
        box(axes, x, y, height, ROOM, room, lines)
        if walk.calls[room]:
            called = f"{walk.calls[room]} hops in"
            axes.text(x + WIDTH - 0.06, y - 0.08, called, va="top", ha="right", fontsize=6.5, color="#444444")
        middles[room] = (x, y - height / 2)
        y -= height + 0.22
    return middles


def draw_store(axes: Axes, walks: list[Walk], store: str, x: float) -> tuple[float, float]:
    """A store with every array that a walk touched; its middle."""
    arrays = dict.fromkeys(array for walk in walks for _, _, name, array in walk.touches if name == store)
    grouped: dict[str, list[str]] = {}
    for array in arrays:
        folder, _, name = array.rpartition("/")
        grouped.setdefault(folder or ".", []).append(name)
    lines = []
    for folder, names in sorted(grouped.items()):
        lines += [f"{folder}/" if folder != "." else "", *(f"  {name}" for name in sorted(names))]
    lines = [line for line in lines if line]
    height = 0.4 + 0.2 * len(lines)
    box(axes, x, -0.6, height, STORE, store, lines)
    return x, -0.6 - height / 2


def main() -> None:
    walks = read_walks(HERE / "walks.txt")
    figure, axes = plt.subplots(figsize=(15, 7.2))
    columns = [0.0, 3.1, 6.2, 9.3, 12.6]  # walk, store, walk, store, walk
    stores = {"plays.zarr": draw_store(axes, walks, "plays.zarr", columns[1])}
    stores["model.zarr"] = draw_store(axes, walks, "model.zarr", columns[3])
    for walk, x in zip(walks, columns[::2], strict=True):
        middles = draw_rooms(axes, walk, x)
        flows = dict.fromkeys((room, verb, store) for room, verb, store, _ in walk.touches)
        for room, verb, store in flows:
            (left, height), (place, middle) = middles[room], stores[store]
            if verb == "reads" and (room, "writes", store) in flows and place > left and store == "plays.zarr":
                continue  # a record that is read back after it was written
            lift = 0.25 if verb == "writes" else -0.25
            after = left > place  # the room stands right of the store
            room_end = (left - 0.05 if after else left + WIDTH + 0.05, height + lift / 3)
            store_end = (place + WIDTH + 0.05 if after else place - 0.05, middle + lift)
            ends = (store_end, room_end) if verb == "reads" else (room_end, store_end)
            if abs(left - place) > 4:  # around what stands in between
                bottom = -0.6 - 2 * (-0.6 - middle) - 0.05
                aisle = left - 0.3
                axes.plot(
                    [place + WIDTH / 2, place + WIDTH / 2, aisle, aisle],
                    [bottom, LOWEST, LOWEST, height],
                    color=READ,
                    lw=1.6,
                )
                ends = ((aisle, height), room_end)
            arrow(axes, *ends, READ if verb == "reads" else WRITE)
    axes.plot([], [], color=READ, label="reads")
    axes.plot([], [], color=WRITE, label="writes")
    axes.legend(loc="lower left", ncols=2, fontsize=9, frameon=False)
    axes.set_xlim(-0.2, 15.1)
    axes.set_ylim(-6.2, 0.9)
    axes.set_axis_off()
    figure.savefig(HERE / "figures" / "flow.png", dpi=110, bbox_inches="tight")


if __name__ == "__main__":
    main()
