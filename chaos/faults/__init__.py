"""The faults, one file each, and their registry. Each header describes what breaks, how the bite is
measured, and how the heal is checked."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from linkflap.chaos.faults.broker_disconnect import BrokerDisconnect
from linkflap.chaos.faults.broker_disk_full import BrokerDiskFull
from linkflap.chaos.faults.broker_disk_slow import BrokerDiskSlow
from linkflap.chaos.faults.broker_kill import BrokerKill
from linkflap.chaos.faults.broker_memory_limit import BrokerMemoryLimit
from linkflap.chaos.faults.broker_pause import BrokerPause
from linkflap.chaos.faults.broker_restart import BrokerRestart
from linkflap.chaos.faults.certificate_expired import CertificateExpired
from linkflap.chaos.faults.certificate_untrusted import CertificateUntrusted
from linkflap.chaos.faults.client_kill import ClientKill
from linkflap.chaos.faults.client_pause import ClientPause
from linkflap.chaos.faults.clock_skew import ClockSkew
from linkflap.chaos.faults.controller_loss import ControllerLoss
from linkflap.chaos.faults.coordinator_loss import CoordinatorLoss
from linkflap.chaos.faults.failover import FailoverForced, FailoverPlanned
from linkflap.chaos.faults.leadership_move import LeadershipMove
from linkflap.chaos.faults.link_bandwidth import LinkBandwidth
from linkflap.chaos.faults.link_cut import LinkCut
from linkflap.chaos.faults.link_flap import LinkFlap
from linkflap.chaos.faults.link_half_open import LinkHalfOpen
from linkflap.chaos.faults.link_latency import LinkLatency
from linkflap.chaos.faults.link_reset import LinkReset
from linkflap.chaos.faults.mirror_coordinator_loss import MirrorCoordinatorLoss
from linkflap.chaos.faults.mirror_kill import MirrorKill
from linkflap.chaos.faults.mirror_reverse import MirrorReverse
from linkflap.chaos.faults.mirror_source_moved import MirrorSourceMoved
from linkflap.chaos.faults.mirror_verbs import MirrorVerbs
from linkflap.chaos.faults.partition import Partition
from linkflap.chaos.faults.partitions_added import PartitionsAdded
from linkflap.chaos.faults.program_pause import ProgramPause
from linkflap.chaos.faults.records_deleted import RecordsDeleted
from linkflap.chaos.faults.rolling_restart import RollingRestart
from linkflap.chaos.faults.rolling_upgrade import RollingUpgrade
from linkflap.chaos.faults.settings import settings
from linkflap.chaos.faults.topic_recreated import TopicRecreated
from linkflap.chaos.faults.unclean_election import UncleanElection
from linkflap.harness.model.protocols import FaultFactory
from linkflap.harness.model.scenario import FaultSpec

FAULTS: Final[Mapping[str, FaultFactory]] = MappingProxyType(
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
        "partition": Partition,
        "partitions-added": PartitionsAdded,
        "program-pause": ProgramPause,
        "records-deleted": RecordsDeleted,
        "rolling-restart": RollingRestart,
        "rolling-upgrade": RollingUpgrade,
        "topic-recreated": TopicRecreated,
        "unclean-election": UncleanElection,
    }
)
OF_CLIENTS: Final = frozenset({"client-kill", "client-pause", "program-pause"})
"""Faults of a cluster's clients. They do not change its brokers or mirrors."""
OF_PROGRAMS: Final = frozenset({"program-pause"})
"""Faults of users' programs. A scenario has programs only if its author wrote them into it."""
OF_CERTIFICATES: Final = frozenset({"certificate-expired", "certificate-untrusted"})
"""Faults of certificates, which only clusters with TLS have."""
IN_CONTAINERS: Final = frozenset({"broker-disconnect", "broker-memory-limit", "partition"})
"""Faults that need brokers in containers."""

IN_PROCESSES: Final = frozenset({"clock-skew", "rolling-upgrade"})
"""Faults that need brokers that are processes."""
BY_FAKETIME: Final = frozenset({"clock-skew"})
"""Faults that need libfaketime (`harness.runtimes.faketime`)."""


def check_options(spec: FaultSpec) -> None:
    """Raises InputError if a fault has an unknown option, or an option of a wrong type. The kind of
    the fault must be registered."""
    settings(spec, FAULTS[spec.fault].defaults)
