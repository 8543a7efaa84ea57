"""Inventories for intersphinx: the few things of other projects that our pages name, and where they are explained.

A whole inventory comes from the network when a site is built. These are written from the list below instead, so that
the site can be built anywhere and without a warning.
"""

from __future__ import annotations

import zlib
from pathlib import Path

PROJECTS: dict[str, tuple[str, dict[str, str]]] = {
    "python": (
        "https://docs.python.org/3/",
        {
            "bool": "library/functions.html#bool",
            "dict": "library/stdtypes.html#dict",
            "float": "library/functions.html#float",
            "int": "library/functions.html#int",
            "list": "library/stdtypes.html#list",
            "str": "library/stdtypes.html#str",
        },
    ),
    "numpy": ("https://numpy.org/doc/stable/", {"numpy.ndarray": "reference/generated/numpy.ndarray.html"}),
    "pandas": (
        "https://pandas.pydata.org/docs/",
        {name: f"reference/api/{name}.html" for name in ("pandas.DataFrame", "pandas.Series")},
    ),
    "scipy": (
        "https://docs.scipy.org/doc/scipy/",
        {"scipy.sparse.csr_matrix": "reference/generated/scipy.sparse.csr_matrix.html"},
    ),
    "xarray": ("https://docs.xarray.dev/en/stable/", {"xarray.Dataset": "generated/xarray.Dataset.html"}),
    "dask": ("https://docs.dask.org/en/stable/", {"dask.array.Array": "array.html"}),
    "distributed": ("https://distributed.dask.org/en/stable/", {"distributed.Client": "api.html#distributed.Client"}),
    "zarr": ("https://zarr.readthedocs.io/en/stable/", {"zarr.Group": "index.html"}),
    "sklearn": (
        "https://scikit-learn.org/stable/",
        {
            "sklearn.utils.validation.check_is_fitted": (
                "modules/generated/sklearn.utils.validation.check_is_fitted.html"
            )
        },
    ),
}


def write_inventories(folder: Path) -> dict[str, tuple[str, str]]:
    """Write an inventory a project, in Sphinx's own format (version 2); what intersphinx wants to know."""
    mapping = {}
    for name, (address, things) in PROJECTS.items():
        head = f"# Sphinx inventory version 2\n# Project: {name}\n# Version: \n# The remainder is zlib-compressed.\n"
        lines = "".join(f"{thing} py:class 1 {place} -\n" for thing, place in things.items())
        file = folder / f"{name}.inv"
        file.write_bytes(head.encode() + zlib.compress(lines.encode()))
        mapping[name] = (address, str(file))
    return mapping
