"""Topologies: the notation (`parse`, and its inverse `arrows`), the named ones, and drawings."""

from linkflap.topologies.drawing import draw
from linkflap.topologies.named import TOPOLOGIES
from linkflap.topologies.notation import parse

__all__ = ["TOPOLOGIES", "draw", "parse"]
