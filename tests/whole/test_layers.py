"""The rooms of the house, as the table in CONTRIBUTING.md has them: what a module may import, and what stays inside."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter

import pytest
from helpers.source import PACKAGE, Module, modules
from trace_walks import room_of, rooms

MODULES = modules()
TABLE = rooms()
LEVEL = {room: -level for level, room in enumerate(TABLE)}  # the lowest room is the last of the table


def level(name: str) -> int:
    return LEVEL[room_of(name, TABLE)]


def test_the_table_has_every_module_in_one_room_and_no_other():
    named = [name for names in TABLE.values() for name in names]
    there = {module.name.split("/")[0] for module in MODULES}
    assert sorted(named) == sorted(there)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_modules_import_only_from_their_room_and_below(module: Module):
    wrong = [
        f"line {found.line} imports {found.module} of a room above"
        for found in module.imports()
        if found.module and level(found.module) > level(module.name)
    ]
    assert wrong == []


def test_imports_make_no_circle():
    edges = {
        module.name: {found.module for found in module.imports() if not found.late and found.module != module.name}
        for module in MODULES
    }
    TopologicalSorter(edges).prepare()


def test_only_one_module_imports_zarr():
    users = {
        module.name
        for module in MODULES
        for node in ast.walk(module.tree)
        if (isinstance(node, ast.Import) and any(alias.name.split(".")[0] == "zarr" for alias in node.names))
        or (isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == "zarr")
    }
    assert users == {"store/arrays"}


def test_every_folder_says_what_lives_there():
    for folder in {module.folder for module in MODULES if module.folder}:
        assert ast.get_docstring(ast.parse((PACKAGE / folder / "__init__.py").read_text())), folder
