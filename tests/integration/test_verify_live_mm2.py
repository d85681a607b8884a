"""`linkflap verify --bootstrap --mirror mm2`: a MirrorMaker 2 that runs, and records of clients
that are not linkflap's."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from linkflap.harness.capture.live.record import LiveLogsRequest, record
from linkflap.harness.capture.logs_named import LogsRequest
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.protocols import Deployment
from linkflap.harness.model.topology import LinkSpec
from linkflap.harness.model.verdict import Verdict
from linkflap.report.progress import Progress
from linkflap.spark_verify.verdict.judge import Judgement
from tests.copied_logs import judged_again
from tests.kafka_log import batches_in
from tests.mm2_pair import mirrored
from tests.run_copy import seal
from tests.shadows import TOPIC, drained


def fetched(deployment: Deployment, folder: Path, *, named: bool = True) -> Judgement:
    addresses = {name: [deployment.clusters[name].bootstrap] for name in "AB"}
    request = LogsRequest(
        logs={name: Path(name) for name in "AB"},
        links=[LinkSpec(source="A", destination="B")],
        promotions={},
        kind="mm2" if named else "exact",
        mirror_named=named,
    )
    with Progress() as progress:
        record(
            folder,
            LiveLogsRequest(request=request, bootstrap=addresses, access={}, rate=50e6),
            "linkflap verify",
            progress,
        )
    return judged_again(folder)


def examined(judgement: Judgement) -> int:
    (order,) = (check for check in judgement.checks if check.name == "order-equality")
    return order.examined["B/mirrored"]


@pytest.mark.linkflap(topology="A->B")
def test_a_pair_that_runs_is_valid_and_a_lost_batch_is_found(
    linkflap_deployment: Deployment, tmp_path: Path
) -> None:
    with mirrored(linkflap_deployment) as (mirror, writer, _):
        writer.write(10)
        drained(mirror)
        with writer.writing():
            running = fetched(linkflap_deployment, tmp_path / "running")
        assert running.verdict is Verdict.VALID, running.document["reason"]
        assert examined(running) >= 80
        drained(mirror)
        at_rest = fetched(linkflap_deployment, tmp_path / "at-rest")
        assert at_rest.verdict is Verdict.VALID, at_rest.document["reason"]
        assert examined(at_rest) >= examined(running)
        with pytest.raises(InputError, match="add --mirror mm2"):
            fetched(linkflap_deployment, tmp_path / "unnamed", named=False)
        mirror.stop()
    changed = shutil.copytree(tmp_path / "at-rest", tmp_path / "changed")
    (path,) = changed.glob(f"captures/*/B/*/{TOPIC}-0/*.log")
    batches = [data for _, data in batches_in(path)]
    del batches[len(batches) // 2]
    path.write_bytes(b"".join(batches))
    seal(changed)
    lossy = judged_again(changed)
    assert lossy.verdict is Verdict.INVALID
    assert "mirror-hole" in {anomaly.kind for anomaly in lossy.anomalies}
