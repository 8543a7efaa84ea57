"""Pairs: from files, frames, matrices or the model's own process to counts stores, and splits of them.

Imports running, kernels and stores; knows nothing of the model's posterior.
"""
