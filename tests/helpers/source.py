"""The package's source as data: its modules, what they import from each other, which private names they touch."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pairsym_dask

PACKAGE = Path(pairsym_dask.__file__).parent


@dataclass(frozen=True)
class Import:
    """A module of the package is imported, or a name from it; `name` is empty for the module itself."""

    line: int
    module: str
    name: str
    late: bool  # inside a function


@dataclass(frozen=True)
class Module:
    """A source file, by its path inside the package without the ending (`store/counts`)."""

    name: str
    path: Path

    @property
    def folder(self) -> str:
        return self.name.rpartition("/")[0]

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text())

    def imports(self) -> Iterator[Import]:
        """Everything imported from the package, but for the type checker."""
        late, typing = set(), set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef):
                late |= {id(inner) for inner in ast.walk(node)}
            elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                typing |= {id(inner) for inner in ast.walk(node)}
        for node in ast.walk(self.tree):
            if not isinstance(node, ast.ImportFrom) or id(node) in typing or not (base := self._base(node)):
                continue
            for alias in node.names:
                inner = [*base[1:], alias.name]
                path = PACKAGE.joinpath(*inner)
                if path.with_suffix(".py").exists() or path.is_dir():
                    yield Import(node.lineno, "/".join(inner), "", id(node) in late)
                else:
                    yield Import(node.lineno, "/".join(base[1:]), alias.name, id(node) in late)

    def _base(self, node: ast.ImportFrom) -> list[str]:
        """Parts of the module that is imported from, if it is one of the package."""
        here = ["pairsym_dask", *self.path.relative_to(PACKAGE).parts]
        rest = node.module.split(".") if node.module else []
        full = [*here[: len(here) - node.level], *rest] if node.level else rest
        return full if full[:1] == ["pairsym_dask"] else []

    def private_names_made(self) -> set[str]:
        """Private functions, classes, variables, attributes and fields that are defined here."""
        made = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                made.add(node.name)
            elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
                made.add(node.id if isinstance(node, ast.Name) else node.attr)
        return {name for name in made if is_private(name)}

    def private_names_used(self) -> Iterator[tuple[int, str]]:
        """Private names that are imported, or looked up in something other than `self`, with their lines."""
        for found in self.imports():
            if is_private(found.name):
                yield found.line, found.name
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Attribute) and is_private(node.attr):
                yield node.lineno, node.attr


def is_private(name: str) -> bool:
    """Whether a name is for its own folder; `_repr_html_` and the like belong to a protocol."""
    return name.startswith("_") and not name.startswith("__") and not name.endswith("_")


def modules() -> list[Module]:
    """All modules of the package; a folder's own `__init__` goes by the folder's name."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts != ("__init__",):  # it names every public place, and imports none before it is used
            found.append(Module("/".join(parts).removesuffix("/__init__"), path))
    return found
