"""Public tables as a command: a split everybody uses, tuned contenders, one protocol.

Imports the model, the baselines and all below.
"""
