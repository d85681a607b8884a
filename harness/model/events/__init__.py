"""Events: what linkflap did or noticed, one class for each kind. `AnyEvent` is their union.

base        what every event has, and `of_kind`, which selects events of one kind
faults      steps of faults
links       links and their proxies
clusters    clusters, brokers, captures
mirrors     mirrors from their start to their journal
failovers   failovers, promotions, truncations, clients that move
clients     clients and their processes
run         phases, the machine, and notes of others
union       every kind, and the function that makes an event of a row on disk
"""

from linkflap.harness.model.events.base import Event, Kind, OfCluster, OfLink, of_kind, stamped
from linkflap.harness.model.events.clients import (
    ClientCrash,
    ClientDied,
    ClientRestarted,
    ClientStalled,
    InFlight,
    OfClient,
    OfProcess,
    ProducerReplaced,
    ProgramStarted,
    WaitedFor,
)
from linkflap.harness.model.events.clusters import (
    BrokerDied,
    Captured,
    ClusterReady,
    RecordsDeleted,
    ReplicasSampled,
    SampledReplica,
    SettingsSampled,
)
from linkflap.harness.model.events.failovers import (
    ClientsMoved,
    Failover,
    FailoverRefused,
    OfPartition,
    Promotion,
    PromotionUnknown,
    Truncation,
)
from linkflap.harness.model.events.faults import (
    FaultBite,
    FaultEnd,
    FaultHeal,
    FaultStart,
    LostRange,
    OfFault,
    Trigger,
)
from linkflap.harness.model.events.links import LinkProven, ProxyRebuilt
from linkflap.harness.model.events.mirrors import (
    ComparedTopic,
    DescribedPartition,
    JournalPartition,
    JournalTopic,
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
    VerbAnswer,
    VerbsPlayed,
)
from linkflap.harness.model.events.run import HostStall, Interrupted, Note, NotEnded, Phase
from linkflap.harness.model.events.union import KINDS, AnyEvent, read

__all__ = [
    "KINDS",
    "AnyEvent",
    "BrokerDied",
    "Captured",
    "ClientCrash",
    "ClientDied",
    "ClientRestarted",
    "ClientStalled",
    "ClientsMoved",
    "ClusterReady",
    "ComparedTopic",
    "DescribedPartition",
    "Event",
    "Failover",
    "FailoverRefused",
    "FaultBite",
    "FaultEnd",
    "FaultHeal",
    "FaultStart",
    "HostStall",
    "InFlight",
    "Interrupted",
    "JournalPartition",
    "JournalTopic",
    "Kind",
    "LinkProven",
    "LostRange",
    "MirrorCrashed",
    "MirrorDescribed",
    "MirrorLag",
    "MirrorStarted",
    "MirrorState",
    "MirrorStopped",
    "MirrorVerb",
    "NotEnded",
    "Note",
    "OfClient",
    "OfCluster",
    "OfFault",
    "OfLink",
    "OfPartition",
    "OfProcess",
    "Phase",
    "ProducerReplaced",
    "ProgramStarted",
    "Promotion",
    "PromotionUnknown",
    "ProxyRebuilt",
    "RecordsDeleted",
    "ReplicasSampled",
    "SampledReplica",
    "SettingsSampled",
    "SourceMoved",
    "TopicGivenUp",
    "TopicsCompared",
    "Trigger",
    "Truncation",
    "VerbAnswer",
    "VerbsPlayed",
    "WaitedFor",
    "of_kind",
    "read",
    "stamped",
]
