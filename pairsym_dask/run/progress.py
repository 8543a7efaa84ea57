"""One progress display for every scheduler, driven by finished tasks.

On a terminal a bar and a line a sweep, in a notebook one display that is brought up to date in place (and stays in the
saved notebook; it needs no widgets), anywhere else a line a sweep.
"""

from __future__ import annotations

import math
import sys
import time
from typing import Any, TextIO

from tqdm import tqdm

from ..display.cards import bound_words
from ..display.charts import sparkline

REFRESH_SECONDS = 0.2  # between updates of a notebook's display


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return hasattr(shell, "kernel")


class Progress:
    """Shows sweeps, their steps, the bound, pairs a second and the time left."""

    def __init__(self, enabled: bool, sweeps: int, stream: TextIO | None = None, measure: str = "bound") -> None:
        self.enabled = enabled
        self.sweeps = sweeps
        self.measure = measure  # what the number of a sweep is called
        self.note = ""  # what else is to be said of the sweeps so far
        self.stream = stream or sys.stderr
        self.bounds: list[float] = []  # of the sweeps of this fit
        self._rate, self._last = 0.0, 0
        self._bar: Any = None
        self._notebook = enabled and stream is None and in_notebook()
        self._handle: Any = None
        self._shown = 0.0
        self._durations: list[float] = []
        self._tasks = self._expected = self._done = self._finished = self._begun = 0  # of this sweep's graphs
        self._first = 0  # the first sweep of this fit, its start left out

    def start_sweep(self, sweep: int, graphs: int) -> None:
        """A sweep begins, of so many graphs; `start_graph` tells how many tasks they have, else the last sweep does."""
        self._sweep, self._graphs, self._begun, self._name = sweep, graphs, 0, ""
        self._expected, self._tasks, self._done, self._finished = self._tasks, 0, 0, 0
        self._began = time.perf_counter()
        self._first = self._first or max(sweep, 1)
        if self._notebook:
            self._update(self._words(), self._part(), soon=False)
        elif self.enabled and self.stream.isatty():
            self._bar = tqdm(
                total=self._expected or None, file=self.stream, leave=False, dynamic_ncols=True, bar_format="{bar:8}"
            )
            self._draw()

    def start_graph(self, name: str, tasks: int) -> None:
        """A graph of so many tasks is about to run."""
        self._name, self._begun = name, self._begun + 1
        self._tasks, self._finished = self._tasks + tasks, self._done
        if self._bar is not None:
            self._bar.total = max(self._expected, self._tasks)
        self._draw()

    def done(self, key: str) -> None:
        self._done += 1
        if self._bar is not None:
            self._bar.update()
        elif self._notebook:
            self._update(self._words(), self._part())

    def end_sweep(self, sweep: int, bound: float, seconds: float, pairs: int) -> None:
        if sweep > 0:
            self.bounds.append(bound)
            self._durations.append(seconds)
            self._last = sweep
            self._rate = pairs / seconds if seconds > 0 else 0.0
        self._close_bar()
        if self._notebook:
            return  # what was measured shows with the next sweep, or at the end
        if self.enabled:
            rate = f", {self._rate / 1e6:.2f} million pairs/s" if self._rate else ""
            left = f", about {self._left(sweep)} left" if 0 < sweep < self.sweeps else ""
            value = "" if math.isnan(bound) else f"{self.measure} {bound:.10g}, "  # a chain's start has none
            note = f", {self.note}" if self.note else ""
            print(f"sweep {sweep}/{self.sweeps}: {value}{duration(seconds)}{rate}{note}{left}", file=self.stream)

    def close(self) -> None:
        """The last word: a fit that ended, or was interrupted."""
        self._close_bar()
        if self._handle is not None:
            n = len(self._durations)
            taken = f"{n} sweep{'s' * (n > 1)} in {duration(sum(self._durations))}" if n else ""
            words = (f"sweep {self._last}/{self.sweeps}", taken, self._figures())
            self._update(", ".join(filter(None, words)), None, soon=False)

    def _close_bar(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _draw(self) -> None:
        if self._bar is not None:
            words = ", ".join(filter(None, (self._time_left(), self._figures())))
            self._bar.bar_format = f"sweep {self._sweep}/{self.sweeps} {self._name:<12} |{{bar:8}}| {words}"
            self._bar.refresh()
        elif self._notebook:
            self._update(self._words(), self._part())

    def _update(self, words: str, part: float | None, soon: bool = True) -> None:
        """Bring the notebook's display up to date; with `soon` only when the last time is long enough ago."""
        if soon and time.perf_counter() - self._shown < REFRESH_SECONDS:
            return
        self._shown = time.perf_counter()
        bar = "" if part is None else f'<progress value="{part:.4f}" max="1"></progress> '
        line = sparkline(self.bounds, bound_words(self.bounds, self._last - len(self.bounds) + 1))
        bundle = {"text/plain": words, "text/html": f"<div>{bar}{words} {line}</div>"}
        if self._handle is None:
            from IPython.display import display

            self._handle = display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)

    def _part(self) -> float:
        """How much of all sweeps is done, 0 to 1."""
        if self._sweep > self._first and self._expected:
            within = min(self._done / self._expected, 1.0)
        else:  # the graphs that are still to come have not been counted yet
            tasks = self._tasks - self._finished
            here = min((self._done - self._finished) / tasks, 1.0) if tasks else 0.0
            within = max(self._begun - 1 + here, 0.0) / max(self._graphs, self._begun, 1)
        return (max(self._sweep - 1, 0) + within * (self._sweep > 0)) / max(self.sweeps, 1)

    def _words(self) -> str:
        parts = (f"sweep {self._sweep}/{self.sweeps}", self._name, self._time_left(), self._figures())
        return ", ".join(filter(None, parts))

    def _figures(self) -> str:
        """The bound and the speed of the last sweep."""
        if not self.bounds:
            return ""
        figures = f"{self.measure} {self.bounds[-1]:.8g}, {self._rate / 1e6:.2f}M pairs/s"
        return f"{figures}, {self.note}" if self.note else figures

    def _time_left(self) -> str:
        gone = time.perf_counter() - self._began
        return f"{self._left(self._sweep - 1, gone)} left" if self._durations else ""

    def _left(self, finished: int, gone: float = 0.0) -> str:
        recent = self._durations[1:][-5:] or self._durations  # the first sweep may have compiled
        mean = sum(recent) / len(recent)
        return duration(max(mean * (self.sweeps - finished) - min(gone, mean), 0.0))


class Tally:
    """Finished parts of a longer work: a bar on a terminal, elsewhere a line each."""

    def __init__(self, enabled: bool, name: str, unit: str, total: int, stream: TextIO | None = None) -> None:
        self.enabled, self.name, self.unit, self.total = enabled, name, unit, total
        self.stream = stream or sys.stderr
        self._done = 0
        self._bar = tqdm(total=total, desc=name, unit=unit, file=self.stream, disable=None if enabled else True)

    def more(self, parts: int) -> None:
        """There is more to do than was thought."""
        self.total += parts
        self._bar.total = self.total

    def done(self, words: str, best: str) -> None:
        """A part is finished; `words` say what came of it, `best` what is known by now."""
        self._done += 1
        if self.enabled and self._bar.disable:
            print(f"{self.name}: {self.unit} {self._done}/{self.total}, {words}, {best}", file=self.stream, flush=True)
        self._bar.set_postfix_str(best, refresh=False)
        self._bar.update()

    def close(self) -> None:
        self._bar.close()


def duration(seconds: float) -> str:
    """A length of time as people write it.

    >>> duration(3.14159), duration(75), duration(7300)
    ('3.1 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
