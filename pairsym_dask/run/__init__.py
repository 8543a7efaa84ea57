"""Running: dask graphs on threads or a cluster, what is asked of workers, memory budgets, progress.

Imports stores (workers must see them) and the display room; knows nothing of the model.
"""
