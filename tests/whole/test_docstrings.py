"""Public functions and methods say what they take, what they give back, and show it by an example that runs."""

from __future__ import annotations

import inspect
import re

import pytest

import pairsym_dask as ps


def public():
    """Functions of the package, and the methods of its two classes that people call."""
    for name in ps._PLACES:
        value = getattr(ps, name)
        if inspect.isfunction(value):
            yield pytest.param(value, id=name)
    for kind in (ps.PairedSymbols, ps.Counts):
        for name, value in inspect.getmembers(kind, callable):
            internal = name.startswith("_") or (kind is ps.Counts and name not in ("to_scipy", "to_dask"))
            if not internal:
                yield pytest.param(value, id=f"{kind.__name__}.{name}")


def sections(text: str) -> dict[str, str]:
    """Parts of a numpydoc docstring by heading."""
    parts = re.split(r"^([A-Z][a-z]+)\n-+\n", inspect.cleandoc(text), flags=re.MULTILINE)
    return dict(zip(["Summary", *parts[1::2]], parts[::2], strict=True))


def described(text: str) -> set[str]:
    heads = re.findall(r"^(\S.*?)(?: : .*)?$", text, flags=re.MULTILINE)
    return {name.strip().lstrip("*") for head in heads for name in head.split(",")}


@pytest.mark.parametrize("function", list(public()))
def test_docstrings_have_parameters_returns_and_an_example(function):
    found = sections(inspect.getdoc(function) or "")
    assert found["Summary"].strip()
    taken = [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]
    if taken:
        assert described(found["Parameters"]) == set(taken)
    assert found["Returns"].strip()
    assert ">>> " in found["Examples"]


def test_a_docstring_that_forgets_a_parameter_is_found():
    text = (
        "Sum.\n\nParameters\n----------\na, b : int\n    Two.\n**more\n    Others.\n\nReturns\n-------\nint\n    It.\n"
    )
    assert described(sections(text)["Parameters"]) == {"a", "b", "more"}
    assert sections(text)["Returns"].startswith("int")
