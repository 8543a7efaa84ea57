"""One version everywhere, and a recipe that asks for what the package asks for."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

import pairsym_dask as ps

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
OTHER_NAMES = {"xxhash": "python-xxhash", "dask[dataframe]": "dask"}  # at conda-forge


def recipe() -> dict[str, dict[str, list[str]]]:
    text = (ROOT / "recipe" / "meta.yaml").read_text()
    values = dict(re.findall(r'{% set (\w+) = "(.+)" %}', text))
    text = re.sub(r"{%.*%}", "", text)
    text = re.sub(r"{{ (\w+)(\[0\])? }}", lambda found: values.get(found[1], found[1]), text)
    return yaml.safe_load(text)


def test_the_version_has_one_source_and_the_other_places_follow():
    assert "version" in PROJECT["project"]["dynamic"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "pairsym_dask/__init__.py"
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == recipe()["package"]["version"] == ps.__version__
    assert f"## {ps.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_recipe_asks_for_what_the_package_asks_for():
    wanted = {}
    for line in PROJECT["project"]["dependencies"]:
        name, least = line.split(">=")
        wanted[OTHER_NAMES.get(name, name)] = least
    found = dict(line.split(" >=") for line in recipe()["requirements"]["run"])
    assert found.pop("python") == PROJECT["project"]["requires-python"].removeprefix(">=")
    assert found == wanted


def test_the_sdist_holds_what_its_own_tests_and_releases_need():
    held = {Path(place).parts[1] for place in PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]}
    wanted = "pairsym_dask tests docs workflows data recipe .ci conftest.py CITATION.cff *.md LICENSE"
    assert held == set(wanted.split())
    assert all(any(ROOT.glob(place)) for place in held)
