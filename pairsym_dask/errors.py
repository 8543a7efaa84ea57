"""Errors that a person can do something about, by name."""

from __future__ import annotations


class PairsymError(Exception):
    """Base of all errors that a person can do something about; the message is one clear sentence."""


class InputError(PairsymError, ValueError):
    """Pairs, labels or settings that cannot be used."""


class StoreError(PairsymError):
    """A store that is missing, unfinished, in the way, or of another kind or version."""


class DamagedStoreError(StoreError):
    """A store whose bytes are not the ones that were written."""


class MemoryBudgetError(PairsymError):
    """A memory budget that cannot hold one block."""


class SchedulerError(PairsymError):
    """A scheduler that does not answer, or workers that cannot do the work."""


class FitInterrupted(KeyboardInterrupt):
    """An interrupt that says where the fit stands; a notebook shows its sentence alone."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


class NumericError(PairsymError):
    """A block whose update is not finite."""
