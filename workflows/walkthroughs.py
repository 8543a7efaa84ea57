"""The transcripts of docs/walkthroughs.md: make their files, run their commands, write or compare what comes out.

python workflows/walkthroughs.py            # run all of it again and write the page
python workflows/walkthroughs.py --check    # run it and compare (a test does)
python workflows/walkthroughs.py --files .  # only the files of the page, to follow it by hand
"""

from __future__ import annotations

import argparse
import contextlib
import doctest
import gzip
import io
import os
import random
import re
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "walkthroughs.md"
BLOCK = re.compile(r"^```(console|pycon)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NOT_RUN = re.compile(r"<!-- not run: .+ -->\s*$")
# What differs from run to run, in the order in which it is masked: seconds and rates, dates, folders, digests.
CHANGING = (
    (r"(about )?\b\d[\d.]*( min \d+)? (s|min|ms)\b( left)?", "SECONDS"),
    (r"[\d.]+ million pairs/s", "RATE"),
    (r"\d{4}-\d\d-\d\dT[\d:]+(Z|\+00:00)", "DATE"),
    (r"/\S*/(?=[\w.]+)", ""),
    (r"\b[0-9a-f]{16,}\b", "DIGEST"),
    (r"\d+ (tasks at a time|cores)", "CORES"),
    (r"tasks at a time [\d.]+ \w+", "MEMORY"),
)
COMPILING = "compiling for this type of machine"  # only where nothing is compiled yet
NUMBER = re.compile(r"[+-]?\d[\d,]*\.?\d*(?:e[+-]?\d+)?")


def make_files(folder: Path) -> None:
    """Orders of a shop as shops export them: semicolons, decimal commas, 3 % of the rows spoilt."""
    rng = random.Random(1)
    articles = [f"Gewürz {k}" if k % 3 else f"Öl {k}" for k in range(60)]

    def rows(number: int, spoilt: float, first: int = 0) -> list[list[str]]:
        found = []
        for _ in range(number):
            shopper = rng.randrange(300)
            liked = (shopper * 7 + int(20 * rng.random() ** 2)) % 60
            row = [f"kunde {first + shopper}", articles[liked], rng.choice(["1", "2", "1,5"])]
            if rng.random() < spoilt:
                place, value = rng.choice([(0, ""), (0, "  "), (1, ""), (2, "0"), (2, "-2"), (2, "n/a"), (2, "")])
                row[place] = value
            found.append(row)
        return found

    def text(rows: list[list[str]], separator: str, end: str = "\n") -> str:
        return "".join(separator.join(row) + end for row in [["kunde", "artikel", "menge"], *rows])

    (folder / "orders.csv").write_text(text(rows(6000, 0.03), ";"), encoding="utf-8")
    excel = "sep=;\r\n" + text(rows(400, 0), ";", "\r\n")
    (folder / "excel.csv").write_bytes(excel.encode("cp1252"))
    (folder / "windows.csv").write_bytes(text(rows(400, 0), "\t").encode("utf-16"))
    (folder / "archive.csv.gz").write_bytes(gzip.compress(text(rows(400, 0), "|").encode(), mtime=0))
    for day in (1, 2):
        (folder / f"day{day}.csv").write_text(text(rows(50, 0, first=100 * day), ";"), encoding="utf-8")
    table = "".join(f"{name};{'Öl' if name[0] == 'Ö' else 'Gewürz'};{2 + k % 5} €\n" for k, name in enumerate(articles))
    (folder / "articles.csv").write_text("item;kind;price\n" + table, encoding="utf-8")
    (folder / "script.py").write_text(
        'import pairsym_dask as ps\n\nmodel = ps.load("model.zarr")\nmodel.recommend("kunde 7", n="five")\n'
    )


class Session:
    """A page's commands, run one after the other in one folder and one Python session."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.names = folder, {"__name__": "__main__"}
        (folder / "workflows").symlink_to(ROOT / "workflows")

    def run(self, language: str, block: str) -> str:
        """The block with what its commands say now."""
        return self._shell(block) if language == "console" else self._python(block)

    def _shell(self, block: str) -> str:
        paths = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": paths, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
        said = []
        for line in block.splitlines():
            if line.startswith("$ "):
                done = subprocess.run(
                    ["bash", "-c", line[2:]], cwd=self.folder, env=environment, text=True, encoding="utf-8",
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600,
                )  # fmt: skip
                lines = [out.rstrip() for out in done.stdout.rstrip().splitlines()]
                said += [line, *(out for out in lines if not out.startswith(COMPILING))]
        return "\n".join(said) + "\n"

    def _python(self, block: str) -> str:
        said = []
        for example in doctest.DocTestParser().get_examples(block):
            lines = example.source.rstrip("\n").splitlines()
            said += [f"{'>>>' if k == 0 else '...'} {line}".rstrip() for k, line in enumerate(lines)]
            out = io.StringIO()
            with (
                contextlib.chdir(self.folder),
                contextlib.redirect_stdout(out),
                contextlib.redirect_stderr(io.StringIO()),
            ):
                try:
                    exec(compile(example.source, "page", "single"), self.names)
                except (Exception, KeyboardInterrupt) as error:
                    out.write(f"{type(error).__name__}: {error}\n")
            said += [line.rstrip() for line in out.getvalue().rstrip().splitlines()]
        return "\n".join(said) + "\n"


def again(page: str) -> str:
    """The page with all its transcripts made again."""
    with tempfile.TemporaryDirectory(prefix="walkthroughs-") as place:
        session = Session(Path(place))

        def renew(found: re.Match[str]) -> str:
            if NOT_RUN.search(page[: found.start()]):
                return found[0]
            said = session.run(found[1], found[2]).replace(f"{place}/", "")
            return f"```{found[1]}\n{said}```"

        return BLOCK.sub(renew, page)


def differences(one: str, two: str) -> list[str]:
    """Lines that differ in more than seconds, dates, places and last digits."""
    lines = [one.splitlines(), two.splitlines()]
    if len(lines[0]) != len(lines[1]):
        return [f"{len(lines[0])} lines became {len(lines[1])}"]
    return [f"- {a}\n+ {b}" for a, b in zip(*lines, strict=True) if not _alike(a, b)]


def _alike(one: str, two: str) -> bool:
    for pattern, word in CHANGING:
        one, two = re.sub(pattern, word, one), re.sub(pattern, word, two)
    if NUMBER.sub("#", one).split() != NUMBER.sub("#", two).split():
        return False
    numbers = [[float(x.replace(",", "")) for x in NUMBER.findall(text)] for text in (one, two)]
    return all(abs(a - b) <= 0.02 * max(abs(a), abs(b)) + 1e-6 for a, b in zip(*numbers, strict=True))


def main(words: list[str] | None = None) -> Any:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument("--files", metavar="FOLDER", type=Path, help="only make the page's files")
    given = parser.parse_args(words)
    if given.files is not None:
        make_files(given.files)
        return 0
    warnings.simplefilter("ignore")
    before = PAGE.read_text(encoding="utf-8")
    after = again(before)
    if not given.check:
        PAGE.write_text(after, encoding="utf-8")
        return 0
    found = differences(before, after)
    print("\n".join(found) or "the page is what its commands say")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
