"""A random life of a model store: sweeps, kills, resumes, damage, clean-up, second drivers, in any order."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import hypothesis.strategies as st
import pytest
from helpers.faults import FaultyDisk, all_bits, in_child, run_fit, tiny_counts, using
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from pairsym_dask.errors import StoreError
from pairsym_dask.store import attempts
from pairsym_dask.store import model_store as posterior
from pairsym_dask.store.counts import Counts
from pairsym_dask.store.model_store import ModelStore
from pairsym_dask.store.records import unseal
from pairsym_dask.store.verify import verify

LAST = 40
FOLDER = Path("/dev/shm" if Path("/dev/shm").is_dir() else tempfile.gettempdir())


class Life(RuleBasedStateMachine):
    counts: Counts
    reference: list[str]
    struck: ClassVar[Counter[str]] = Counter()

    def count(self, what: str, struck: bool = True) -> None:
        self.struck[what] += struck

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=FOLDER, prefix="pairsym-life-"))
        self.path = self.folder / "model.zarr"
        self.reported = -1  # the newest sweep that a caller was told of
        self.goal = 0

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    def _fit(self, sweeps: int, **options: Any) -> None:
        commit = run_fit(self.counts, self.path, sweeps, **options)
        self.reported = max(self.reported, commit.sweep)

    @rule(more=st.integers(0, 2))
    def sweep(self, more: int) -> None:
        self.goal = min(LAST, max(self.goal, self.reported + more))
        self._fit(self.goal)

    @rule(at=st.integers(1, 450), fault=st.sampled_from(["before", "torn", "after"]))
    def kill(self, at: int, fault: str) -> None:
        self.goal = min(LAST, self.reported + 2)

        def work() -> None:
            with using(FaultyDisk(fault, at)):
                run_fit(self.counts, self.path, self.goal)

        status = in_child(work)
        assert status in (0, -9)
        self.count("kills", status == -9)

    @rule(at=st.integers(1, 450), fault=st.sampled_from(["ENOSPC", "EIO", "lost"]))
    def fail(self, at: int, fault: str) -> None:
        self.goal = min(LAST, self.reported + 1)
        disk = FaultyDisk(fault, at)
        with using(disk):
            try:
                self._fit(self.goal)
            except StoreError:
                pass
        self.count("errors of the disk", disk.struck > 0)

    @rule(seed=st.integers(0, 1000))
    def damage_and_recover(self, seed: int) -> None:
        """Spoil the newest sweep: an error, then the explicit option, and nothing but that sweep was lost."""
        if self.reported < 1:
            return
        commits = ModelStore(self.path).commits()
        files = sorted(p for p in (self.path / commits[-1].folder).rglob("c.*"))
        victim = random.Random(seed).choice([*files, self.path / f"commits/{commits[-1].sweep:05d}.json"])
        data = bytearray(victim.read_bytes())
        data[seed % len(data)] ^= 1 << seed % 8
        victim.write_bytes(data)
        assert not verify(self.path).sound
        self.count("damages")
        with pytest.warns(UserWarning, match="set aside as damaged"):
            self._fit(commits[-1].sweep, discard_damaged=True)

    @rule()
    def second_driver(self) -> None:
        if not ModelStore(self.path).is_model():
            return
        with ModelStore(self.path).lock(), pytest.raises(StoreError, match="is in use by"):
            self._fit(LAST)
        self.count("second drivers")

    @rule()
    def clean(self) -> None:
        store = ModelStore(self.path)
        if store.is_model():
            store.clean(store.commits(), grace=0.0)
            commits = store.commits()
            kept = {commit.folder for commit in store.wanted(commits)}
            # A driver that has declared its attempt may still commit it, dead as it looks: its files stay until then.
            declared = attempts.declared(store.storage, len(commits))
            kept |= {unseal(record, "attempt")["generation"] for record in declared}
            assert {name for name in store.storage.folders() if name.startswith("generation-")} <= kept

    @invariant()
    def nothing_reported_is_lost_and_no_bit_differs(self) -> None:
        if ModelStore(self.path).is_model():
            found = all_bits(self.path)
            assert len(found) > self.reported
            assert found == self.reference[: len(found)]
            assert verify(self.path).sound, str(verify(self.path))


@pytest.fixture(scope="module")
def life(layout: str, tmp_path_factory: pytest.TempPathFactory) -> type[Life]:
    folder = tmp_path_factory.mktemp("life")
    Life.counts = tiny_counts(folder / "counts.zarr", users=40, items=5)
    run_fit(Life.counts, folder / "reference.zarr", LAST)
    Life.reference = all_bits(folder / "reference.zarr")
    return Life


def live(life: type[Life], examples: int, steps: int) -> str:
    """Live some lives; how often what really struck."""
    life.struck.clear()
    run_state_machine_as_test(
        life,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert len(life.struck) == 4, life.struck
    assert min(life.struck.values()) >= 1, life.struck
    return ", ".join(f"{number} {what}" for what, number in sorted(life.struck.items()))


@pytest.mark.slow
def test_any_life_of_a_store_keeps_every_reported_sweep(life: type[Life]) -> None:
    live(life, 8, 10)


@pytest.mark.long
def test_long_lives(life: type[Life], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posterior, "GRACE_SECONDS", 0.0)
    struck = live(life, 150, 25)
    print(f"\nstate machine: 150 lives of up to 25 steps ({struck}), no reported sweep lost, no bit differs")
