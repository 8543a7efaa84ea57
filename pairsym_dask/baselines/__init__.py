"""Other systems under one contract: `fit`, `counts`, `scores`, `recommend`; those of the paper, and tuned peers.

Imports evaluation and all below; pairs and parameters are in memory, for comparison, not for scale.
"""

from __future__ import annotations

from .base import Baseline
from .bpr import BPR
from .ease import EASE
from .graph_filter import GraphFilter
from .ials import IALS
from .implicit_package import ImplicitALS, ImplicitBPR
from .item_neighbours import ItemKNN, RP3beta
from .popularity import Popularity
from .random_graph import RandomGraph
from .softmax import SoftmaxMAP

__all__ = [
    "BPR",
    "EASE",
    "IALS",
    "Baseline",
    "GraphFilter",
    "ImplicitALS",
    "ImplicitBPR",
    "ItemKNN",
    "Popularity",
    "RP3beta",
    "RandomGraph",
    "SoftmaxMAP",
]
