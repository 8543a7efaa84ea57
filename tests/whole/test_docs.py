"""Every block of code in README.md and docs/ runs, in order, page by page, in a folder of its own."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from distributed.deploy import Cluster

from pairsym_dask.cli import pairsym
from pairsym_dask.settings import Settings

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NOT_RUN = re.compile(r"<!-- (?:not run: (?P<reason>.+)|(?P<command>test command)) -->$")


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    code: str
    reason: str | None  # why it does not run here


def blocks(page: Path) -> list[Block]:
    found: list[Block] = []
    before, language, code, start = "", None, [], 0
    for number, line in enumerate(page.read_text().splitlines(), 1):
        fence = re.match(r"^```(\w*)$", line)
        if fence and language is None:
            language, code, start = fence[1], [], number
        elif fence:
            why = NOT_RUN.match(before)
            reason = None if why is None else why["reason"] or why["command"]
            found.append(Block(page, start, str(language), "\n".join(code) + "\n", reason))
            language, before = None, ""
        elif language is not None:
            code.append(line)
        elif line.strip():
            before = line.strip()
    assert language is None, f"{page}:{start} has no end"
    return found


def run_shell(block: Block) -> None:
    """Lines in a shell, but `pairsym` in this process: a new one for each would take two seconds."""
    lines = block.code.replace("\\\n", " ").splitlines()
    for ours, group in itertools.groupby(lines, lambda line: line.startswith("pairsym ")):
        if not ours:
            in_shell(block, "\n".join(group))
            continue
        for line in group:
            done = CliRunner().invoke(pairsym, shlex.split(line)[1:], catch_exceptions=False)
            assert done.exit_code == 0, f"{block.page.name}: {line}\n{done.output}"


def in_shell(block: Block, code: str) -> None:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code], capture_output=True, text=True, timeout=300, env=environment
    )
    assert done.returncode == 0, f"{block.page.name}:{block.line}\n{done.stdout}{done.stderr}"


def run_python(block: Block, names: dict[str, Any]) -> None:
    # Lines keep their numbers, so that a failure points into the page.
    exec(compile("\n" * block.line + block.code, block.page, "exec"), names)


@pytest.mark.docs
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "workflows").symlink_to(ROOT / "workflows")
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.reason is None and block.language == "sh":
            run_shell(block)
        elif block.reason is None and block.language == "python":
            run_python(block, names)
    for value in names.values():
        if isinstance(value, Cluster):  # of a page whose reader goes on
            value.close()


def test_code_that_does_not_run_here_says_why() -> None:
    skipped = [block for page in PAGES for block in blocks(page) if block.reason is not None]
    assert skipped
    assert all(len(block.reason or "") > 10 for block in skipped)


def test_links_between_pages_lead_somewhere() -> None:
    broken = []
    for page in PAGES:
        text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        for target, anchor in re.findall(r"\]\(([^)#\s]*)(#[^)]*)?\)", text):
            if "://" in target:
                continue
            file = (page.parent / target).resolve() if target else page
            if not file.exists():
                broken.append(f"{page.name}: {target}")
            elif anchor and anchor not in headings(file):
                broken.append(f"{page.name}: {target}{anchor}")
    assert broken == []


def headings(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(), flags=re.MULTILINE)
    return {"#" + re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_command_line_page_is_what_the_command_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    import make_command_line

    assert (ROOT / "docs" / "command_line.md").read_text() == make_command_line.page(), (
        "run python docs/make_command_line.py"
    )


def test_the_settings_page_has_every_setting_with_its_default() -> None:
    text = (ROOT / "docs" / "settings.md").read_text()
    stated = re.findall(r"^\| `(\w+)` \| `([^`]+)`(?: \(`([^`]+)`\))? \|", text, flags=re.MULTILINE)
    lists, model = (
        {field.name: repr(getattr(one, field.name)).replace("'", '"') for field in fields(Settings)}
        for one in (Settings(), Settings(selection="constant"))
    )
    assert {name: value for name, value, _ in stated if name in lists} == lists
    assert {name: other or value for name, value, other in stated if name in model} == model


def block_with(page: str, words: str, language: str = "python") -> Block:
    (found,) = [b for b in blocks(ROOT / "docs" / page) if b.language == language and words in b.code]
    return found


@pytest.mark.docs
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_slurm_lines_make_the_job_script_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    run_python(block_with("scaling.md", "SLURMCluster("), names)
    names["cluster"].close()
    printed = capsys.readouterr().out.strip().splitlines()
    assert printed[:-1] == block_with("scaling.md", "#SBATCH", "text").code.rstrip().splitlines()
    assert re.search(r"dask_worker tcp://\S+ .*--nthreads 4 --memory-limit 16\S+ --nworkers 4", printed[-1])


@pytest.mark.docs
def test_the_kubernetes_lines_make_a_cluster_of_such_workers() -> None:
    pytest.importorskip("dask_kubernetes", reason="dask-kubernetes is not installed")
    names: dict[str, Any] = {}
    run_python(block_with("scaling.md", "make_cluster_spec("), names)
    spec = names["spec"]["spec"]
    assert spec["worker"]["replicas"] == 8
    worker = spec["worker"]["spec"]["containers"][0]
    assert worker["args"][0] == "dask-worker"
    assert worker["args"][-2:] == ["--nthreads", "4"]
    assert worker["resources"]["limits"] == {"cpu": "4", "memory": "8Gi"}
    assert {"name": "AWS_ENDPOINT_URL", "value": "https://s3.example.org"} in worker["env"]
    assert spec["scheduler"]["service"]["ports"][0]["port"] == 8786
    assert names["spec"]["metadata"]["name"] == "pairsym"
