"""What a process holds for everybody stands in a table with its reason, and nowhere else."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import re
import threading
from pathlib import Path
from typing import Any

import pairsym_dask as ps

PACKAGE = Path(ps.__file__).parent
PAGE = Path(__file__).parents[2] / "docs/architecture.md"
LOCKS = (type(threading.Lock()), type(threading.RLock()))


def may_change(value: Any) -> bool:
    """Whether a value of a module is state: a container that begins empty, a lock, or an object of ours."""
    if isinstance(value, (dict, list, set)):
        return True
    frozen = dataclasses.is_dataclass(value) and value.__dataclass_params__.frozen  # type: ignore[union-attr]
    ours = type(value).__module__.startswith("pairsym_dask")
    return isinstance(value, LOCKS) or (ours and not frozen and not isinstance(value, (type, tuple)))


def state() -> set[tuple[str, str]]:
    """Module and name of all that modules hold and may change."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        module = path.relative_to(PACKAGE).with_suffix("").as_posix()
        tree = ast.parse(path.read_text())
        found |= {(module, name) for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}
        made = [name for node in tree.body for name in made_by(node)]
        if made:
            values = vars(importlib.import_module(f"pairsym_dask.{module.replace('/', '.')}"))
            found |= {(module, name) for name in made if may_change(values[name])}
    return found


def made_by(node: ast.stmt) -> list[str]:
    """Names that a statement of a module gives to what a call makes, or to an empty container."""
    if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
        return []
    value = node.value
    table = isinstance(value, ast.Call) and ast.unparse(value.func) == "str.maketrans"
    if table or (not isinstance(value, ast.Call) and ast.unparse(value) not in ("{}", "[]")):
        return []
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def test_the_table_of_state_is_whole() -> None:
    section = PAGE.read_text().partition("## State\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([\w/]+)` \| ((?:`\w+`(?:, )?)+) \| (.+) \|$", section, re.MULTILINE)
    told = {(module, name) for module, names, _ in rows for name in re.findall(r"`(\w+)`", names)}
    assert told == state()
    assert all(len(reason) > 20 for _, _, reason in rows)
