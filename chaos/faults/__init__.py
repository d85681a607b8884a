"""The faults, one module for each kind of target, and their registry. A docstring says what breaks,
how the bite is measured, and how the heal is checked."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from linkflap.chaos.faults.base import FaultBase, settings
from linkflap.chaos.faults.brokers import (
    BrokerDisconnect,
    BrokerDiskFull,
    BrokerDiskSlow,
    BrokerKill,
    BrokerMemoryLimit,
    BrokerPause,
    BrokerRestart,
    ClockSkew,
)
from linkflap.chaos.faults.clients import ClientKill, ClientPause, ProgramPause
from linkflap.chaos.faults.clusters import (
    ControllerLoss,
    CoordinatorLoss,
    NetworkPartition,
    RollingRestart,
    RollingUpgrade,
)
from linkflap.chaos.faults.leaders import LeadershipMove, UncleanElection
from linkflap.chaos.faults.links import (
    CertificateExpired,
    CertificateUntrusted,
    LinkBandwidth,
    LinkCut,
    LinkFlap,
    LinkHalfOpen,
    LinkLatency,
    LinkReset,
)
from linkflap.chaos.faults.mirrors import (
    FailoverForced,
    FailoverPlanned,
    MirrorCoordinatorLoss,
    MirrorKill,
    MirrorReverse,
    MirrorSourceMoved,
    MirrorVerbs,
)
from linkflap.chaos.faults.programs import (
    ProgramDelayed,
    ProgramDowngraded,
    ProgramRefused,
    ProgramRepeated,
    ProgramThrottled,
    ProgramUnanswered,
)
from linkflap.chaos.faults.services import ServiceKill
from linkflap.chaos.faults.topics import PartitionsAdded, RecordsDeletion, TopicRecreated
from linkflap.harness.model.faults import FaultName
from linkflap.harness.model.scenario import FaultSpec

FAULTS: Final[Mapping[str, type[FaultBase]]] = MappingProxyType(
    {
        "broker-disconnect": BrokerDisconnect,
        "broker-disk-full": BrokerDiskFull,
        "broker-disk-slow": BrokerDiskSlow,
        "broker-kill": BrokerKill,
        "broker-memory-limit": BrokerMemoryLimit,
        "broker-pause": BrokerPause,
        "broker-restart": BrokerRestart,
        "certificate-expired": CertificateExpired,
        "certificate-untrusted": CertificateUntrusted,
        "client-kill": ClientKill,
        "client-pause": ClientPause,
        "clock-skew": ClockSkew,
        "controller-loss": ControllerLoss,
        "coordinator-loss": CoordinatorLoss,
        "failover-forced": FailoverForced,
        "failover-planned": FailoverPlanned,
        "leadership-move": LeadershipMove,
        "link-bandwidth": LinkBandwidth,
        "link-cut": LinkCut,
        "link-flap": LinkFlap,
        "link-half-open": LinkHalfOpen,
        "link-latency": LinkLatency,
        "link-reset": LinkReset,
        "mirror-coordinator-loss": MirrorCoordinatorLoss,
        "mirror-kill": MirrorKill,
        "mirror-reverse": MirrorReverse,
        "mirror-source-moved": MirrorSourceMoved,
        "mirror-verbs": MirrorVerbs,
        "partition": NetworkPartition,
        "partitions-added": PartitionsAdded,
        "program-delayed": ProgramDelayed,
        "program-downgraded": ProgramDowngraded,
        "program-pause": ProgramPause,
        "program-refused": ProgramRefused,
        "program-repeated": ProgramRepeated,
        "program-throttled": ProgramThrottled,
        "program-unanswered": ProgramUnanswered,
        "records-deleted": RecordsDeletion,
        "rolling-restart": RollingRestart,
        "rolling-upgrade": RollingUpgrade,
        "service-kill": ServiceKill,
        "topic-recreated": TopicRecreated,
        "unclean-election": UncleanElection,
    }
)
OF_CLIENTS: Final = frozenset(name for name in FAULTS if FaultName(name).of_clients)
"""Faults of a cluster's clients. They do not change its brokers or mirrors."""
OF_PROGRAMS: Final = frozenset(name for name in FAULTS if name.startswith("program-"))
"""Faults of users' programs. A scenario has programs only if its author wrote them into it."""
ON_THE_WIRE: Final = OF_PROGRAMS - {"program-pause"}
"""Faults that a recorder applies to requests. They have an effect only if programs send
requests.
"""
OF_CERTIFICATES: Final = frozenset({"certificate-expired", "certificate-untrusted"})
"""Faults of certificates, which only clusters with TLS have."""
_OF_ITS_OWN: Final = frozenset(
    {
        *(name for name in FAULTS if name.startswith("link-")),
        *("client-kill", "client-pause", "failover-forced", "failover-planned", "mirror-kill"),
        *("partitions-added", "records-deleted", "topic-recreated"),
    }
)
"""Faults of links, of linkflap's own processes and of the run's own topics."""
IN_CONTAINERS: Final = frozenset({"broker-disconnect", "broker-memory-limit", "partition"})
"""Faults that need brokers in containers."""

IN_PROCESSES: Final = frozenset({"clock-skew", "rolling-upgrade"})
"""Faults that need brokers that are processes."""
ON_ATTACHED: Final = _OF_ITS_OWN | OF_PROGRAMS
"""Faults that affect only this run's links, clients and topics, so that they can be played on
clusters that linkflap did not start.
"""
ON_KEPT: Final = _OF_ITS_OWN | {
    *("broker-kill", "broker-pause", "broker-restart", "rolling-restart"),
    *("controller-loss", "coordinator-loss", "leadership-move", "mirror-reverse"),
}
"""Faults after which clusters are as before once topics and groups are removed, so that a suite may
use them for another run. All others change clusters for good (releases, disks, clocks,
certificates, networks), or nobody has shown that they do not.
"""
BY_COMMAND: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "broker-kill": ("kill", "start"),
        "broker-restart": ("stop", "start"),
        "broker-pause": ("pause", "resume"),
    }
)
"""Faults that can be played there too, and which of the user's commands for the cluster's brokers
each needs."""
BEYOND_ITS_OWN: Final[Mapping[str, str]] = MappingProxyType(
    {
        "leadership-move": "it would move the leaders of other topics too",
        "mirror-reverse": "a failback begins on clusters that linkflap has started again",
    }
)
"""Why some other faults cannot be played there. The remaining ones need a broker's process, disk,
container or certificate.
"""
BY_FAKETIME: Final = frozenset({"clock-skew"})
"""Faults that need libfaketime (`harness.runtimes.faketime`)."""


def check_options(spec: FaultSpec) -> None:
    """Raises InputError if a fault has an unknown option, or a wrong value of one. The kind of
    the fault must be registered."""
    settings(spec, FAULTS[spec.fault].options)
