"""Topologies: the notation (`parse`, and its inverse in `topologies.arrows`), the named ones, and drawings of them."""

from topologies.arrows import parse
from topologies.drawing import draw
from topologies.named import TOPOLOGIES

__all__ = ["TOPOLOGIES", "draw", "parse"]
