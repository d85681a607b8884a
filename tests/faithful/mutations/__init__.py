"""Every mutation, by what it breaks; importing this fills the catalogue."""

from tests.faithful.mutations import (
    bounds,
    cuts,
    failovers,
    ids,
    internal,
    logs,
    positions,
    readers,
    refusals,
    relayed,
    resets,
    reversals,
    transactions,
    truncations,
    vacuous,
)
from tests.faithful.mutations.base import CATALOGUE, Mutation

__all__ = [
    "CATALOGUE",
    "Mutation",
    "bounds",
    "cuts",
    "failovers",
    "ids",
    "internal",
    "logs",
    "positions",
    "readers",
    "refusals",
    "relayed",
    "resets",
    "reversals",
    "transactions",
    "truncations",
    "vacuous",
]
