"""The sweep: Algorithm 1, its graphs and tasks, the plan of blocks and memory, backgrounds and the bound.

Imports running, kernels and stores.
"""
