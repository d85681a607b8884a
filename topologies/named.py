"""The registry of named topologies: one function in a file of its own, and one line here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from linkflap.harness.model.topology import Topology
from linkflap.topologies.chain import chain
from linkflap.topologies.fan_in import fan_in
from linkflap.topologies.fan_out import fan_out
from linkflap.topologies.pair import pair
from linkflap.topologies.ring import ring
from linkflap.topologies.round_trip import round_trip


class Build(Protocol):
    """Makes a topology whose clusters all have these brokers and this Kafka."""

    def __call__(self, *, brokers: int = ..., kafka: str = ...) -> Topology: ...


TOPOLOGIES: Final[Mapping[str, Build]] = {
    "chain": chain,
    "fan_in": fan_in,
    "fan_out": fan_out,
    "pair": pair,
    "ring": ring,
    "round_trip": round_trip,
}
