"""Logs of a failover that a build was recorded with: before and after its stop."""

from __future__ import annotations

from pathlib import Path

from linkflap.harness.log import batches
from linkflap.harness.log.batch_headers import Headers

LOGS = Path(__file__).parents[1] / "data" / "logs" / "kip-1279"


def headers(moment: str, cluster: str, partition: int = 0) -> Headers:
    return batches.scan(sorted((LOGS / moment / cluster / f"tx-{partition}").glob("*.log"))).headers
