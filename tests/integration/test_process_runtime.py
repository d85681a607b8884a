"""Clusters of child processes: specific to this runtime. What all runtimes guarantee is in
test_runtimes.py and test_runtime_deployments.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from linkflap.harness.machine.leases import Lease
from linkflap.harness.model.errors import SetupError
from linkflap.harness.runtimes.kraft.configuration import BrokerPorts
from linkflap.harness.runtimes.process import ProcessCluster, install


def test_a_cluster_without_its_releases_features_is_refused(tmp_path: Path) -> None:
    """The trap of formatting by copy: such a broker starts silently without transactions v2."""
    lease = Lease()
    try:
        internal, client, controller = lease.ports(3)
        ports = {
            1: BrokerPorts(
                listens={"INTERNAL": internal, "CLIENT": client, "CONTROLLER": controller},
                advertised={},
            )
        }
        cluster = ProcessCluster("A", install("4.3.1"), ports, tmp_path)
        (cluster.brokers[1].log_dir / "bootstrap.checkpoint").unlink()
        cluster.launch()
        try:
            with pytest.raises(SetupError, match=r"transaction\.version.*remove"):
                cluster.await_ready()
        finally:
            cluster.kill()
    finally:
        lease.release()
