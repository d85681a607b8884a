"""The seams of linkflap: the protocols that faults, mirrors and workloads implement, and those of
the objects that they receive.

A fault receives the `World` and nothing else. Only `harness.runtimes` knows whether a Broker, a
Link or a Service is a process or a container. Every method here blocks until its effect is there (a
killed broker is dead, a cut link refuses) or raises.
"""

from linkflap.harness.model.protocols.clients import Clients, DiedProcess, Moment, Program, Workload
from linkflap.harness.model.protocols.clusters import (
    Broker,
    BrokerState,
    Certificate,
    Cluster,
    Confines,
    MemoryUse,
    is_running,
)
from linkflap.harness.model.protocols.deployments import (
    Deployment,
    Running,
    Service,
    Sidecar,
    Spawn,
)
from linkflap.harness.model.protocols.faults import Bite, Fault, FaultFactory, World
from linkflap.harness.model.protocols.links import Direction, Link
from linkflap.harness.model.protocols.mirrors import (
    Administered,
    FailoverKind,
    Mirror,
    MirrorStage,
    PlayedVerbs,
    Recorder,
    ReportsGivenUpTopics,
    ReportsStage,
)

__all__ = [
    "Administered",
    "Bite",
    "Broker",
    "BrokerState",
    "Certificate",
    "Clients",
    "Cluster",
    "Confines",
    "Deployment",
    "DiedProcess",
    "Direction",
    "FailoverKind",
    "Fault",
    "FaultFactory",
    "Link",
    "MemoryUse",
    "Mirror",
    "MirrorStage",
    "Moment",
    "PlayedVerbs",
    "Program",
    "Recorder",
    "ReportsGivenUpTopics",
    "ReportsStage",
    "Running",
    "Service",
    "Sidecar",
    "Spawn",
    "Workload",
    "World",
    "is_running",
]
