"""The transcripts of docs/walkthroughs.md are what their commands say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.docs
def test_transcripts_are_what_their_commands_say(tmp_path):
    pytest.importorskip("polars")
    pytest.importorskip("mypy")
    done = subprocess.run(
        [sys.executable, ROOT / "workflows" / "walkthroughs.py", "--check"],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_transcripts_may_differ_in_seconds_dates_and_last_digits_alone(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "workflows")
    from walkthroughs import differences

    said = "ann go 1 0.1238, 2.5 s, about 1 min 3 s left, live/2026-11-17T204354Z\n"
    alike = "ann  go 1 0.1239, 31 s, about 0.7 s left, live/2027-01-02T030405Z\n"
    assert differences(said, alike) == []
    for other in (said.replace("go", "chess"), said.replace("0.1238", "0.1338"), said + "more\n"):
        assert len(differences(said, other)) == 1
