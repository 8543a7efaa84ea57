"""The rooms of the house: a module imports only from its own room and rooms below."""

from __future__ import annotations

import ast
from pathlib import Path

import pairsym_dask

PACKAGE = Path(pairsym_dask.__file__).parent
ROOMS = [
    ["errors", "options", "settings"],
    ["display"],
    ["store"],
    ["kernels"],
    ["run"],
    ["pairs"],
    ["sweep"],
    ["answers"],
    ["evaluation"],
    ["baselines"],
    ["report"],
    ["model"],
    ["demo"],
    ["cli"],
]
LEVEL = {name: level for level, room in enumerate(ROOMS) for name in room}


def modules():
    for path in sorted(PACKAGE.rglob("*.py")):
        relative = path.relative_to(PACKAGE)
        if relative.name != "__init__.py" or len(relative.parts) > 1:
            yield relative.parts[0].removesuffix(".py"), path


def imports(path):
    """(room module, line, inside a function) of every import from the package."""
    depth = len(path.relative_to(PACKAGE).parts)
    tree = ast.parse(path.read_text())
    inner = {id(node) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for node in ast.walk(f)}
    typing = {id(node) for f in ast.walk(tree) if isinstance(f, ast.If) and ast.unparse(f.test) == "TYPE_CHECKING"
              for node in ast.walk(f)}  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level and id(node) not in typing:
            names = [node.module.split(".")[0]] if node.module else [alias.name for alias in node.names]
            if node.level == depth:
                yield from ((name, node.lineno, id(node) in inner) for name in names if name != "__version__")


def test_every_module_has_a_room():
    assert {name for name, _ in modules()} <= set(LEVEL)


def test_modules_import_only_from_their_room_and_below():
    wrong = [
        f"{path.name}:{line} imports {name}"
        for module, path in modules()
        for name, line, inside in imports(path)
        if LEVEL[name] > LEVEL[module]
    ]
    assert wrong == []


def test_imports_inside_a_room_make_no_circle():
    edges = {}
    for module, path in modules():
        edges.setdefault(module, set()).update(
            name for name, _, inside in imports(path) if not inside and name != module
        )
    done = set()
    while len(done) < len(edges):
        ready = {name for name, wanted in edges.items() if name not in done and wanted <= done}
        assert ready, {name: wanted - done for name, wanted in edges.items() if name not in done}
        done |= ready


def test_only_one_room_imports_zarr():
    users = {
        path.name
        for _, path in modules()
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Import) and any(alias.name.split(".")[0] == "zarr" for alias in node.names))
        or (isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == "zarr")
    }
    assert users == {"arrays.py"}
