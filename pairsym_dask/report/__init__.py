"""Reports: what a store holds in words, and the page about a fitted model.

Imports evaluation and all below.
"""
