"""Kernels: everything compiled, from vectors in registers to rows, top-n lists, keys and random numbers.

Imports no other room: kernels get arrays and numbers, and know neither stores nor settings.
"""
