"""How many steps of a pass make one task: each alone on threads, on a cluster as many as its scheduler asks for.

Steps are the same functions with the same arguments however they are bundled, and sums go up the same tree: bundles
change no bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

TASK_SECONDS = 0.5e-3  # of the scheduler's one core, for a task; docs/scaling.md has measurements
LONGEST = 5.0  # seconds of a task: what a worker's death costs, and how long a pass may wait for its last task
ARITY = 8  # of the tasks that add up what others have gathered
TAIL = 4  # some bundles are cut into so many, so that no worker is left alone with a long one


@dataclass(frozen=True)
class Hands:
    """Who works: the threads of a cluster's workers, or 0 for those of this process, where a task costs nothing."""

    threads: int = 0
    crowded: bool = False  # whether some of the workers are processes of one machine
    slots: tuple[str, ...] = ()  # the address of each thread's worker, as far as it is known

    def tasks(self, seconds: float) -> int:
        """Tasks that a pass of so many core-seconds is best cut into, whatever the steps it has.

        n tasks cost the scheduler n t, and the last ones end half a task apart: seconds / 2n for every thread. The sum
        is least for tasks of sqrt(2 t seconds), however many threads there are; each should have one, unless the
        scheduler needs longer for them than they save.
        """
        one = min(math.sqrt(2 * TASK_SECONDS * seconds), LONGEST)
        enough = min(self.threads, math.sqrt(seconds / TASK_SECONDS))
        return max(1, math.ceil(max(seconds / one if one else 1, enough)))

    def bundles(
        self, steps: int, seconds: float, least: int = 1, costs: Sequence[float] | np.ndarray = ()
    ) -> list[range]:
        """Steps of a pass of so many core-seconds in runs of a multiple of `least`, the first ones shorter.

        They are run last: of tasks that are alike, dask begins with the one whose key comes last. Where steps are told
        to cost more or less, runs are as long as they cost.
        """
        if not self.threads:
            return in_runs(steps, least)
        runs = self._even(steps, seconds, least)
        return evened(runs, costs, least) if len(costs) else runs

    def _even(self, steps: int, seconds: float, least: int) -> list[range]:
        each = _multiple(steps / self.tasks(seconds), least)
        many = steps // each - self.threads  # one bundle of each thread is cut again
        if many < self.threads:
            return in_runs(steps, each)
        short = -(-(steps - many * each) // least) * least
        rest = [range(short + part.start, short + part.stop) for part in in_runs(steps - short, each)]
        return in_runs(short, _multiple(each / TAIL, least)) + rest

    def aligned(self, parts: int, seconds: float, copies: int = 1, most: int | None = None) -> list[range]:
        """Parts of a sum in runs of 2^n, at most so many, that tasks add up: branches of the whole sum's tree.

        The pass has `copies` tasks for every run.
        """
        run = 1
        if self.threads:
            times = {}
            while run < 2 * parts and (run == 1 or (most is None or run <= most)):
                tasks = copies * -(-parts // run)
                if run == 1 or seconds / tasks <= LONGEST:
                    times[run] = TASK_SECONDS * tasks + -(-tasks // self.threads) * seconds / tasks
                run *= 2
            run = min(times, key=times.__getitem__)
        return in_runs(parts, run)


def evened(runs: list[range], costs: Sequence[float] | np.ndarray, least: int = 1) -> list[range]:
    """As many runs of a multiple of `least` steps, or fewer, each with the part of all costs that it had of the steps.

    >>> evened([range(0, 2), range(2, 4)], [5, 1, 1, 3])
    [range(0, 1), range(1, 4)]
    """
    steps = runs[-1].stop
    ends = [*range(0, steps, least), steps]
    spent = np.concatenate([[0.0], np.cumsum(costs)])[ends]
    wanted = spent[-1] * np.array([run.stop for run in runs[:-1]]) / steps
    nearest = np.searchsorted((spent[:-1] + spent[1:]) / 2, wanted)
    bounds = sorted({0, steps, *(ends[k] for k in nearest)})
    return [range(first, stop) for first, stop in pairwise(bounds)]


def _multiple(steps: float, least: int) -> int:
    return max(1, round(steps / least)) * least


def in_runs(steps: int, most: int) -> list[range]:
    """All steps in runs of at most so many.

    >>> in_runs(5, 2)
    [range(0, 2), range(2, 4), range(4, 5)]
    """
    return [range(first, stop) for first, stop in pairwise([*range(0, steps, most), steps])]


def add_in_tree(parts: Iterable[Any], add: Callable[[Any, Any], Any]) -> Any:
    """The sum of some parts as `Graph.tree` adds them, with no more of them at hand than the tree is high.

    Neighbours are added, then neighbours among the sums; an odd one waits. Sums of aligned runs of 2^n parts, added
    the same way, are the sum of all.

    >>> add_in_tree("abcdefg", lambda one, two: f"({one}{two})")
    '(((ab)(cd))((ef)g))'
    """
    waiting: list[tuple[int, Any]] = []  # sums of so many levels, the highest first
    for part in parts:
        level, total = 0, part
        while waiting and waiting[-1][0] == level:
            total, level = add(waiting.pop()[1], total), level + 1
        waiting.append((level, total))
    total = waiting.pop()[1]
    while waiting:
        total = add(waiting.pop()[1], total)
    return total
