"""Answers: predictions, lists, explanations, neighbours, new users, updates of a fitted model.

Imports the sweep and pairs rooms and all below.
"""
