"""A name that begins with an underscore is for its own folder."""

from __future__ import annotations

import pytest
from helpers.source import Module, modules

MODULES = modules()
EXTENDED = {
    "fitted": "answers",
    "model": "answers",
    "sampler/chain": "sweep",
}  # folders of classes that a module's classes extend
MADE = {module.name: module.private_names_made() for module in MODULES}


def made_in(folder: str) -> set[str]:
    return {name for module in MODULES if module.folder == folder for name in MADE[module.name]}


@pytest.mark.parametrize("module", MODULES, ids=[module.name for module in MODULES])
def test_no_private_name_crosses_a_folder(module: Module):
    # An attribute's owner is not known from the source alone: a name is foreign if only other folders make it.
    foreign = set().union(*MADE.values()) - made_in(module.folder) - made_in(EXTENDED.get(module.name, module.folder))
    assert [f"line {line}: {name}" for line, name in module.private_names_used() if name in foreign] == []
