"""Whether a client is in a transaction, or in a commit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from linkflap.harness.model.protocols import Moment
from linkflap.harness.workloads.protocol import ClientState

_WORDS: Final[Mapping[Moment, str]] = {
    "any": "anything",
    "transaction": "an open transaction",
    "commit": "a commit",
}


def is_at(state: ClientState, moment: Moment) -> bool:
    """Whether a client last reported that it has this in flight."""
    return {
        "any": True,
        "transaction": state.open and not state.committing,
        "commit": state.committing,
    }[moment]
