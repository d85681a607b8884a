"""Every kind of event, and the function that makes an event of a row on disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, get_args

import msgspec

from linkflap.harness.model.events.base import Event
from linkflap.harness.model.events.clients import (
    ClientCrash,
    ClientDied,
    ClientRestarted,
    ClientStalled,
    ProducerReplaced,
    ProgramStarted,
)
from linkflap.harness.model.events.clusters import (
    BrokerDied,
    Captured,
    ClusterReady,
    RecordsDeleted,
    ReplicasSampled,
    SettingsSampled,
)
from linkflap.harness.model.events.failovers import (
    ClientsMoved,
    Failover,
    FailoverRefused,
    Promotion,
    PromotionUnknown,
    Truncation,
)
from linkflap.harness.model.events.faults import FaultBite, FaultEnd, FaultHeal, FaultStart, Trigger
from linkflap.harness.model.events.links import LinkProven, ProxyRebuilt
from linkflap.harness.model.events.mirrors import (
    MirrorCrashed,
    MirrorDescribed,
    MirrorLag,
    MirrorStarted,
    MirrorState,
    MirrorStopped,
    MirrorVerb,
    SourceMoved,
    TopicGivenUp,
    TopicsCompared,
    VerbsPlayed,
)
from linkflap.harness.model.events.run import HostStall, Interrupted, Note, NotEnded, Phase
from linkflap.harness.model.history import EventRow

AnyEvent = (
    Phase
    | ClusterReady
    | LinkProven
    | ProxyRebuilt
    | Trigger
    | FaultStart
    | FaultBite
    | FaultHeal
    | FaultEnd
    | MirrorStarted
    | MirrorDescribed
    | MirrorVerb
    | SourceMoved
    | TopicsCompared
    | VerbsPlayed
    | MirrorStopped
    | MirrorCrashed
    | MirrorLag
    | MirrorState
    | TopicGivenUp
    | Failover
    | FailoverRefused
    | Promotion
    | PromotionUnknown
    | Truncation
    | ClientsMoved
    | ProgramStarted
    | ClientDied
    | ClientRestarted
    | ClientCrash
    | ClientStalled
    | ProducerReplaced
    | BrokerDied
    | Captured
    | RecordsDeleted
    | ReplicasSampled
    | SettingsSampled
    | HostStall
    | Interrupted
    | NotEnded
    | Note
)
KINDS: Final[Mapping[str, type[Event]]] = {
    str(kind.__struct_config__.tag): kind for kind in get_args(AnyEvent)
}
"""Every class of events by its kind."""


def read(row: EventRow) -> Event:
    """The event of a row. Raises ValueError for a kind that is not among `KINDS`, and for data that
    do not fit it."""
    if (kind := KINDS.get(row.kind)) is None:
        raise ValueError(f"no kind of event is called {row.kind!r}")
    fields = {**row.data, "event": row.kind, "time": row.time, "subject": row.subject}
    try:
        return msgspec.convert(fields, type=kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"a {row.kind} of {row.subject} that cannot be read: {error}") from None
