"""The documentation site: python -m sphinx -W docs site"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from importlib.metadata import version as installed
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from inventories import write_inventories  # noqa: E402

project = "pairsym_dask"
copyright = "the pairsym_dask developers"
try:
    release = installed("pairsym_dask")
except ModuleNotFoundError:  # a source tree that is not installed
    release = re.findall(r'__version__ = "(.+)"', (HERE.parent / "pairsym_dask" / "__init__.py").read_text())[0]

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
exclude_patterns = ["site", "README.md"]

# Pages: the same Markdown that is read on its own.
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
suppress_warnings = ["myst.xref_missing"]  # links out of docs/ (a test follows every one)
nb_execution_mode = "off"  # notebooks keep the outputs of their last run; a test runs them

# Notebooks live with the workflows; the site gets copies.
notebooks = HERE / "notebooks"
notebooks.mkdir(exist_ok=True)
for notebook in sorted((HERE.parent / "workflows").glob("*.ipynb")):
    shutil.copyfile(notebook, notebooks / notebook.name)

# Reference.
autodoc_typehints = "none"  # docstrings say it in words
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_preprocess_types = True
default_role = "code"

# Links to other projects need their inventories; small ones of our own, so that building needs no network.
intersphinx_mapping = write_inventories(Path(tempfile.mkdtemp(prefix="inventories-")))

html_theme = "furo"
html_title = "pairsym_dask"
html_theme_options = {"navigation_with_keys": True}
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
