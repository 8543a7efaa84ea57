"""What a commit record holds of a sweep beside its files: backgrounds, and where the counts are."""

from __future__ import annotations

import base64
import os

import numpy as np

from ..errors import DamagedStoreError
from ..kernels.layout import statistics_size
from ..store.commit import Commit
from ..store.storage import is_local
from .background import Background


def encode_background(background: Background) -> str:
    """A background as a record holds it."""
    return base64.b64encode(background.packed.tobytes()).decode()


def decode_background(commit: Commit, side: str) -> Background:
    """The background of a committed state."""
    packed = np.frombuffer(base64.b64decode(commit.record["backgrounds"][side]), "<f8")
    if packed.size != statistics_size(commit.settings.factors):
        raise DamagedStoreError(
            f"sweep {commit.sweep} of {commit.storage.url} has a background of {packed.size} numbers, "
            f"not {statistics_size(commit.settings.factors)}"
        )
    return Background(commit.settings.factors, packed)


def relative_path(path: str, start: str) -> str:
    """A counts store's address as seen from the model store, so that both can move together."""
    if not (is_local(path) and is_local(start)):
        return path
    return os.path.relpath(path, os.path.dirname(start))
