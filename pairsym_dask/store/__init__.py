"""Stores: bytes on disk or an object store, arrays and records over them, counts and model stores, locks, checks.

Imports nothing above the ground and the display room; the only room that knows zarr and fsspec.
"""
