"""What people expect of a Python package: types, names, scikit-learn's habits, an interrupt that loses nothing."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

import pairsym_dask as ps
from pairsym_dask.errors import FitInterrupted

PACKAGE = Path(ps.__file__).parent
SCRIPT = """
import pairsym_dask as ps

counts = ps.ingest("plays.csv", "plays.zarr")
model = ps.PairedSymbols(factors=4, dtype="float64").fit(counts, "model.zarr", sweeps=3)
best: str = model.recommend("ann", n=5)["item"].iloc[0]
more: int = model.factors
"""
WRONG = {
    'model.recommend("ann", n="five")': '"int"',
    'ps.PairedSymbols(factors="four")': '"int"',
    "ps.PairedSymbols(fators=4)": "fators",
    'ps.evalute(model, "pairs")': "evalute",
}


def test_type_checkers_see_the_names_that_are_imported():
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {name.asname: node.module for node in block.body for name in node.names}
    assert seen == ps._PLACES
    assert (PACKAGE / "py.typed").exists()


def test_only_public_names_are_listed():
    assert dir(ps) == sorted([*ps._PLACES, "__version__"])
    assert all(hasattr(ps, name) for name in dir(ps))


@pytest.mark.slow
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_type_checkers_find_a_wrong_argument_in_a_users_script(tmp_path, checker):
    command = shutil.which(checker, path=str(Path(sys.executable).parent)) or shutil.which(checker)
    if command is None:
        pytest.skip(f"{checker} is not installed")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT + "".join(f"{line}\n" for line in WRONG))
    options = ["--ignore-missing-imports", "--cache-dir", str(tmp_path)] if checker == "mypy" else []
    environment = {"PATH": str(Path(sys.executable).parent), "MYPYPATH": str(PACKAGE.parent), "HOME": str(tmp_path)}
    if checker == "pyright":
        (tmp_path / "pyrightconfig.json").write_text(f'{{"extraPaths": ["{PACKAGE.parent}"]}}')
        options = ["--pythonpath", sys.executable, "--project", str(tmp_path)]
        environment |= {"HOME": str(Path.home())}
    found = subprocess.run(
        [command, *options, str(script)], capture_output=True, text=True, env=environment, check=False
    )
    lines = SCRIPT.count("\n")
    told = [line for line in found.stdout.splitlines() if "script.py:" in line and "error" in line]
    for number, (line, word) in enumerate(WRONG.items(), lines + 1):
        assert any(f":{number}:" in one and word in one for one in told), (line, found.stdout, found.stderr)
    assert all(int(one.split("script.py:")[1].split(":")[0]) > lines for one in told), found.stdout


def test_scikit_learn_knows_whether_a_model_is_fitted(small_model):
    check_is_fitted(small_model)
    with pytest.raises(NotFittedError):
        check_is_fitted(ps.PairedSymbols())


def test_changed_settings_do_not_disguise_a_fitted_model(small_model):
    model = ps.load(small_model.path)
    assert "for the next fit" not in repr(model)
    model.set_params(factors=9, tau_u=0.5)
    for words in (repr(model), model._repr_html_()):
        assert "factors=4" in words
        assert "for the next fit: factors=9, tau_u=0.5" in words
    assert "90 items x 4 factors" in model._repr_html_()
    assert model.get_params()["factors"] == 9
    assert len(model.recommend(0, n=3)) == 3


def test_an_interrupted_fit_says_so_in_a_sentence_and_leaves_the_model_at_its_last_sweep(small, tmp_path):
    def stop(sweep, elbo, seconds):
        if sweep == 2:
            raise KeyboardInterrupt

    model = ps.PairedSymbols(factors=3)
    with pytest.raises(FitInterrupted) as caught:
        model.fit(small, tmp_path / "m.zarr", sweeps=5, progress=False, callback=stop)
    words = f"interrupted: {tmp_path}/m.zarr stands at sweep 2; run the same again to go on from there"
    assert str(caught.value) == words
    assert caught.value._render_traceback_() == [words]  # what a notebook shows
    assert isinstance(caught.value, KeyboardInterrupt)
    assert model.history["sweep"].tolist() == [0, 1, 2]
    assert len(model.recommend(0, n=3)) == 3
    assert model.fit(small, tmp_path / "m.zarr", sweeps=5, progress=False).history["sweep"].iloc[-1] == 5


def test_whatever_is_no_counts_store_says_how_to_make_one(tmp_path):
    frame = pd.DataFrame({"user": ["ann"], "item": ["go"]})
    words = (
        'a counts store is wanted here, not a DataFrame; make one of it first: counts = ps.ingest(pairs, "counts.zarr")'
    )
    for call in (ps.PairedSymbols().fit, ps.leave_one_out):
        with pytest.raises(ps.InputError) as caught:
            call(frame, tmp_path / "m.zarr")
        assert str(caught.value) == words
    frame.to_csv(tmp_path / "plays.csv")
    with pytest.raises(ps.StoreError, match=r"plays.csv is a file, not a counts store; ingest makes one of it"):
        ps.PairedSymbols().fit(tmp_path / "plays.csv", tmp_path / "m.zarr")
    assert not (tmp_path / "m.zarr").exists()
