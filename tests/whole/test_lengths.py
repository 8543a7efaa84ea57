"""A module is short enough to be read at one sitting."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST = 400  # lines
CASES = [
    pytest.param(path, id=name)
    for folder in ("pairsym_dask", "tests")
    for path in sorted((ROOT / folder).rglob("*.py"))
    for name in [str(path.relative_to(ROOT))]
]


@pytest.mark.parametrize("path", CASES)
def test_no_module_has_more_than_400_lines(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MOST
