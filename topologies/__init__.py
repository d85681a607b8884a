"""Topologies: the notation (`parse`, and its inverse `arrows`) and the named ones. All of them:
`linkflap list`."""

from linkflap.topologies.named import TOPOLOGIES
from linkflap.topologies.notation import parse

__all__ = ["TOPOLOGIES", "parse"]
