"""What people see while a fit runs: a bar on a terminal, one display in a notebook, lines elsewhere."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import subprocess
import sys
import termios

import pytest
from helpers.stores import make_store, random_counts

from pairsym_dask.model import PairedSymbols
from pairsym_dask.run.progress import Progress

CODE = "import pairsym_dask as ps, sys; ps.PairedSymbols(factors=2).fit(sys.argv[1], sys.argv[2], sweeps=3)"


def test_lines_where_there_is_no_terminal():
    stream = io.StringIO()
    shown = Progress(True, 3, stream)
    for sweep, seconds in ((0, 0.0), (1, 20.0), (2, 2.0)):
        shown.start_sweep(sweep, 4)
        shown.start_graph("update users", 1)
        shown.done("update-users-0")
        shown.end_sweep(sweep, -100.0 + sweep, seconds, 4_000_000)
    shown.close()
    assert stream.getvalue().splitlines() == [
        "sweep 0/3: bound -100, 0.0 s",
        "sweep 1/3: bound -99, 20 s, 0.20 million pairs/s, about 40 s left",
        "sweep 2/3: bound -98, 2.0 s, 2.00 million pairs/s, about 2.0 s left",  # the first sweep had to compile
    ]


def test_silence_on_request(capfd):
    shown = Progress(False, 1)
    shown.start_sweep(1, 1)
    shown.start_graph("update users", 1)
    shown.done("update-users-0")
    shown.end_sweep(1, -1.0, 1.0, 1)
    shown.close()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("shape", [(700, 90), (60, 900)])
def test_every_task_that_is_announced_is_done(shape, tmp_path, monkeypatch):
    totals = []

    class Recorder(Progress):
        def end_sweep(self, *arguments):
            totals.append((self._tasks, self._done))
            super().end_sweep(*arguments)

    monkeypatch.setattr("pairsym_dask.sweep.fit.Progress", Recorder)
    counts = make_store(random_counts(*shape, 0.2), tmp_path / "counts.zarr")
    PairedSymbols(factors=3).fit(counts, tmp_path / "model.zarr", sweeps=3, progress=False)
    assert len(totals) == 4
    assert all(announced == done > 0 for announced, done in totals)
    assert totals[1] > totals[2] == totals[3]  # the first one finds how items weigh, for all


@pytest.mark.slow
def test_a_terminal_shows_steps_bound_speed_and_time_left(small, tmp_path):
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, 100))
    command = [sys.executable, "-c", CODE, small.path, str(tmp_path / "m.zarr")]
    with subprocess.Popen(command, stdout=slave, stderr=slave, stdin=slave) as process:
        os.close(slave)
        text = b""
        while select.select([master], [], [], 120)[0]:
            try:
                text += os.read(master, 65536)
            except OSError:  # the other end is closed
                break
    os.close(master)
    words = text.decode()
    assert process.returncode == 0, words
    assert re.search(r"sweep 2/3 update users \|.{8}\| [\d.]+ s left, bound -\d+\.?\d*, [\d.]+M pairs/s", words)
    assert re.search(r"sweep 1/3 weigh items *\|", words)
    for step in ("update items", "bound"):
        assert re.search(rf"sweep 3/3 {step} *\|", words)
    assert re.search(r"sweep 3/3: bound -\d+\.?\d*, [\d.]+ s, [\d.]+ million pairs/s\r\n$", words)


@pytest.mark.slow
def test_a_notebook_keeps_one_display_and_no_warning(small, tmp_path):
    client = pytest.importorskip("jupyter_client.manager", reason="no notebook kernel is installed")
    pytest.importorskip("ipykernel", reason="no notebook kernel is installed")
    environment = {**os.environ, "IPYTHONDIR": str(tmp_path / "ipython")}
    manager, talk = client.start_new_kernel(kernel_name="python3", env=environment)
    messages = []
    try:
        path = json.dumps([small.path, str(tmp_path / "m.zarr")])
        code = f"import pairsym_dask as ps; model = ps.PairedSymbols(factors=2).fit(*{path}, sweeps=3)"
        talk.execute_interactive(code, timeout=120, output_hook=messages.append)
    finally:
        talk.stop_channels()
        manager.shutdown_kernel(now=True)
    kinds = [message["msg_type"] for message in messages]
    assert kinds.count("display_data") == 1
    assert set(kinds) <= {"display_data", "update_display_data", "status", "execute_input"}  # no stream, no error
    shown = [message["content"]["data"] for message in messages if "display" in message["msg_type"]]
    assert any("<progress" in data["text/html"] for data in shown)
    assert re.fullmatch(r"sweep 3/3, 3 sweeps in [\d.]+ s, bound -\S+, [\d.]+M pairs/s", shown[-1]["text/plain"])
    assert "<svg" in shown[-1]["text/html"]
    assert "<progress" not in shown[-1]["text/html"]
