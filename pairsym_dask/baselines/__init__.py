"""The systems that the paper compares with, under one contract: `fit`, `counts`, `scores`, `recommend`."""

from __future__ import annotations

from .base import Baseline
from .bpr import BPR
from .popularity import Popularity
from .random_graph import RandomGraph
from .softmax import SoftmaxMAP

__all__ = ["BPR", "Baseline", "Popularity", "RandomGraph", "SoftmaxMAP"]
