"""Arrays whose addresses kernels work with live to the end: each is bound once, and kept.

Compiled code frees an array after its last use by name, which an address is not. A name that is bound again, to
anything, gives the array up at once, and the address then points into memory of somebody else.
"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

import pairsym_dask

PACKAGE = Path(pairsym_dask.__file__).parent
FUNCTIONS = {
    f"{path.relative_to(PACKAGE).with_suffix('')}.{node.name}": node
    for path in sorted(PACKAGE.rglob("*.py"))
    for node in ast.walk(ast.parse(path.read_text()))
    if isinstance(node, ast.FunctionDef)
    and any(isinstance(one, ast.Name) and one.id in ("compiled", "inlined") for one in node.decorator_list)
}


def bindings(function: ast.FunctionDef) -> list[tuple[str, ast.expr | None]]:
    """Every binding of a name in a function, with what it is bound to, or taken from."""
    found: list[tuple[str, ast.expr | None]] = []
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Tuple):
                    parts = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value] * len(target.elts)
                    found += [(x.id, v) for x, v in zip(target.elts, parts, strict=True) if isinstance(x, ast.Name)]
                elif isinstance(target, ast.Name):
                    found.append((target.id, node.value))
        elif isinstance(node, ast.For):
            found += [(one.id, None) for one in ast.walk(node.target) if isinstance(one, ast.Name)]
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            found.append((node.target.id, None))
    return found


def calls(function: ast.FunctionDef, *names: str) -> list[ast.expr]:
    return [
        node.args[0]
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
    ]


def root(value: ast.expr | None) -> str | None:
    """The name that a view is a view of: of x[a:b], x.mean, x.reshape(-1)."""
    while isinstance(value, ast.Subscript | ast.Attribute | ast.Call):
        value = value.func if isinstance(value, ast.Call) else value.value
    return value.id if isinstance(value, ast.Name) else None


def faults(function: ast.FunctionDef) -> list[str]:
    bound = bindings(function)
    times, values = Counter(name for name, _ in bound), dict(bound)
    given = {one.arg for one in function.args.args}
    kept = {one.id for one in calls(function, "keep") if isinstance(one, ast.Name)}
    out = []
    for name in {root(value) for value in calls(function, "pointer", "aligned")} - {None}:
        while name not in given and root(values.get(name)) not in (None, "np"):
            if times[name] > 1:
                out.append(f"{name} is bound {times[name]} times")
            name = root(values[name])  # a part of another array, which is what has to live
        if name in given:
            continue
        if times[name] > 1:
            out.append(f"{name} is bound {times[name]} times")
        if name not in kept:
            out.append(f"{name} is not kept")
    return sorted(set(out))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_arrays_outlive_their_addresses(name):
    assert faults(FUNCTIONS[name]) == []


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("x = np.zeros(n)\n    x_ = aligned(x)\n    put(x_, 0, 1.0)", ["x is not kept"]),
        ("x = np.zeros(n)\n    x_ = aligned(x)\n    x, y = n > 0, 1\n    keep(x)", ["x is bound 2 times"]),
        ("z = np.zeros(n)\n    x, y = z[:4], z[4:]\n    x_ = pointer(x)\n    keep(x)", ["z is not kept"]),
        ("x_ = pointer(given.reshape(-1))", []),
        ("z = np.zeros(n)\n    x = z[:4]\n    x_ = pointer(x)\n    keep(z)", []),
    ],
)
def test_what_gives_an_array_up_is_seen(body, told):
    (function,) = ast.parse(f"def kernel(given, n):\n    {body}\n").body
    assert isinstance(function, ast.FunctionDef)
    assert faults(function) == told
