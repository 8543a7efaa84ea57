"""One progress display for every scheduler, driven by finished tasks: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
from typing import Any, TextIO

from tqdm import tqdm


class Progress:
    """Shows sweeps, their steps, the bound and the time left."""

    def __init__(self, enabled: bool, sweeps: int, stream: TextIO | None = None) -> None:
        self.enabled = enabled
        self.sweeps = sweeps
        self.stream = stream or sys.stderr
        self.bound: float | None = None
        self._bar: Any = None
        self._durations: list[float] = []

    def start_sweep(self, sweep: int, tasks: int) -> None:
        self._sweep = sweep
        if self.enabled and self.stream.isatty():
            self._bar = tqdm(total=tasks, file=self.stream, leave=False, bar_format="{desc} |{bar}|")
            self._show("")

    def step(self, name: str) -> None:
        if self._bar is not None:
            self._show(name)

    def done(self, key: str) -> None:
        if self._bar is not None:
            self._bar.update()

    def _show(self, step: str) -> None:
        bound = f", bound {self.bound:.8g}" if self.bound is not None else ""
        left = self._left(self._sweep - 1)
        self._bar.set_description_str(f"sweep {self._sweep}/{self.sweeps} {step:<12}{bound}, {left}")

    def _left(self, finished: int) -> str:
        if not self._durations:
            return "time left unknown yet"
        recent = self._durations[-5:]
        return f"about {duration(sum(recent) / len(recent) * (self.sweeps - finished))} left"

    def end_sweep(self, sweep: int, bound: float, seconds: float, pairs: int) -> None:
        self.bound = bound
        if sweep > 0:
            self._durations.append(seconds)
        if self._bar is not None:
            self._bar.close()
            self._bar = None
        if self.enabled:
            rate = f", {pairs / seconds / 1e6:.2f} million pairs/s" if sweep > 0 and seconds > 0 else ""
            left = f", {self._left(sweep)}" if 0 < sweep < self.sweeps else ""
            print(f"sweep {sweep}/{self.sweeps}: bound {bound:.10g}, {duration(seconds)}{rate}{left}", file=self.stream)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


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
