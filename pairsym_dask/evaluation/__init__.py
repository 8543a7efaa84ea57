"""Evaluation: ranks of held-out pairs, measures with intervals, settings chosen by them.

Imports answers and all below; takes any model that follows the contract, without importing the baselines.
"""
