"""`python -m pairsym_dask.cli`."""

from . import main

main()
