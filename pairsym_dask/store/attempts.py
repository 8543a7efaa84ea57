"""What becomes of an attempt at a sweep: decided once, by a put that exactly one side wins.

    model.zarr/attempts/generation-00003-<attempt>.json   the attempt's commit record, put by its driver before the
                                                          commit; or a note that it was given up, put by whoever wants
                                                          to remove its files

A driver that was stopped and taken for dead may wake at any moment, even between its last look and its commit. So
nothing of an attempt is removed before it is given up here or its sweep has another commit, and nobody commits an
attempt without declaring it here first. A decision may go once the sweep has a commit: its key can be put only once.
"""

from __future__ import annotations

import re
import uuid

from ..errors import DamagedStoreError
from .records import read_record, seal, unseal
from .storage import Storage

FOLDER = "attempts"
_DECISION = re.compile(rf"{FOLDER}/(generation-(\d{{5,}})-[0-9a-f]+)\.json")


def _key(generation: str) -> str:
    return f"{FOLDER}/{generation}.json"


def declare(storage: Storage, generation: str, record: bytes) -> bool:
    """Say that an attempt is about to be committed; False when it was given up."""
    return storage.put_if_absent(_key(generation), record)


def give_up(storage: Storage, generation: str) -> bool:
    """Make sure that an attempt is never committed; False when its driver has declared it."""
    if storage.put_if_absent(_key(generation), seal({"given_up": generation, "by": uuid.uuid4().hex})):
        return True
    try:
        return "given_up" in unseal(read_record(storage, _key(generation)), _key(generation))
    except (FileNotFoundError, DamagedStoreError):
        return False  # committed meanwhile, or nobody knows: the files stay until the sweep has a commit


def declared(storage: Storage, sweep: int) -> list[bytes]:
    """Commit records of a sweep that drivers have declared."""
    found = []
    for key in storage.keys(FOLDER):
        match = _DECISION.fullmatch(key)
        if match and int(match[2]) == sweep:
            try:
                data = read_record(storage, key)
                if "given_up" not in unseal(data, key):
                    found.append(data)
            except (FileNotFoundError, DamagedStoreError):
                pass
    return found


def forget(storage: Storage, generation: str) -> None:
    """Remove the decision about an attempt whose sweep has a commit."""
    storage.remove(_key(generation))


def decided(storage: Storage) -> list[tuple[str, int]]:
    """Attempts about which there is a decision, and their sweeps."""
    matches = (_DECISION.fullmatch(key) for key in storage.keys(FOLDER))
    return [(match[1], int(match[2])) for match in matches if match]
