"""`linkflap verify --bootstrap` on running clusters: a mirror under load; over TLS and SASL, one
that diverged; a MirrorMaker 2 with records of others."""

from __future__ import annotations

import json
import re
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from linkflap.cli.commands import linkflap
from linkflap.harness.capture.live.cluster import access
from linkflap.harness.capture.live.record import LiveLogsRequest, record
from linkflap.harness.capture.logs_request import LogsRequest
from linkflap.harness.log.batches import scan
from linkflap.harness.model.errors import EnvironmentFailure, InputError
from linkflap.harness.model.protocols import Deployment
from linkflap.harness.model.topology import LinkSpec
from linkflap.harness.model.verdict import Verdict
from linkflap.harness.rundir import RunReader
from linkflap.report.progress import shown_on
from linkflap.spark_verify.verdict.judge import Judgement
from tests.copied_logs import judged_again
from tests.kafka_log import batches_in
from tests.mm2_pair import mirrored
from tests.run_copy import seal
from tests.secured import (
    PASSWORD,
    Certificates,
    add_reader,
    certificates,
    properties,
    secure,
    state_of,
)
from tests.shadows import (
    SAME,
    TOPIC,
    TOPIC_PARTITIONS,
    Writer,
    all_end,
    drained,
    ends,
    headers,
    make_topic,
    own_write,
    shadow,
)
from tests.waiting import eventually


def invoked(bootstrap: dict[str, str], out: Path, *more: str) -> Result:
    where = [t for name, address in bootstrap.items() for t in ("--bootstrap", f"{name}={address}")]
    words = f"--link A->B --topics A[.]records --json --out {out}".split()
    arguments = ["verify", *where, *words, *more]
    return CliRunner().invoke(linkflap, arguments, standalone_mode=False)


def verified(bootstrap: dict[str, str], out: Path, *more: str) -> tuple[int, dict[str, Any]]:
    """Exit code and document of the command."""
    result = invoked(bootstrap, out, *more)
    assert result.exception is None, result.output
    return result.return_value, json.loads(result.stdout)


def checks(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {check["name"]: check for check in document["checks"]}


def plain(deployment: Deployment) -> dict[str, str]:
    return {name: deployment.clusters[name].bootstrap for name in "AB"}


@pytest.mark.spark
@pytest.mark.linkflap(topology="A->B")
def test_a_mirror_that_follows_under_load_is_valid(
    linkflap_deployment: Deployment, tmp_path: Path, spark: SparkSession
) -> None:
    deployment = linkflap_deployment
    make_topic(deployment, "A")
    mirror = shadow(deployment, "A->B")
    mirror.start()
    writer = Writer(deployment.clusters["A"].bootstrap)
    writer.write(6)
    drained(mirror)
    with writer.writing():
        code, document = verified(plain(deployment), tmp_path / "following")
    assert (code, document["verdict"]) == (0, "valid"), document["reason"]
    assert checks(document)["byte-equality"]["examined"]["B/mirrored"] >= 10
    assert checks(document)["replica-agreement"]["verdict"] == "not due"
    assert "leaders' logs only" in checks(document)["replica-agreement"]["reason"]


@pytest.mark.spark
@pytest.mark.linkflap(topology="A->B")
def test_by_tls_and_sasl_with_no_right_but_to_read(
    linkflap_deployment: Deployment, tmp_path: Path, spark: SparkSession
) -> None:
    deployment = linkflap_deployment
    make_topic(deployment, "A")
    make_topic(deployment, "A", "secret", 1)
    mirror = shadow(deployment, "A->B")
    mirror.start()
    Writer(deployment.clusters["A"].bootstrap).write(6, size=1000)
    drained(mirror)
    mirror.stop()
    made = certificates(tmp_path / "certificates")
    bootstrap = {name: secure(deployment, name, made) for name in "AB"}
    for name in "AB":
        add_reader(deployment.clusters[name].bootstrap, "A.")
    credentials = properties(tmp_path / "client.properties", made)
    entered = [t for name in "AB" for t in ("--client-properties", f"{name}={credentials}")]
    before = [state_of(address) for address in plain(deployment).values()]
    all_end(deployment, "B", ends(deployment.clusters["A"]))

    code, document = verified(bootstrap, tmp_path / "same", *entered)
    assert (code, document["verdict"]) == (0, "valid"), document["reason"]
    assert checks(document)["byte-equality"]["examined"]["B/mirrored"] >= 10
    assert [state_of(address) for address in plain(deployment).values()] == before
    assert all(
        PASSWORD not in path.read_text(errors="replace")
        for path in (tmp_path / "same").glob("*.json*")
    )

    refused_for_what_is_wrong(deployment, bootstrap, made, tmp_path)
    gone_half_way(deployment, bootstrap, credentials, tmp_path)
    diverged(deployment, bootstrap, entered, tmp_path)


def refused_for_what_is_wrong(
    deployment: Deployment, bootstrap: dict[str, str], made: Certificates, tmp_path: Path
) -> None:
    """One sentence each: a password, a certificate authority, a topic that is not visible, a
    cluster that does not exist, one cluster twice, a promotion that cannot have been."""

    def said(
        *more: str,
        where: dict[str, str] = bootstrap,
        kind: type[EnvironmentFailure] | type[InputError] = InputError,
    ) -> str:
        error = invoked(where, tmp_path / "refused", *more).exception
        assert isinstance(error, kind), error
        assert not (tmp_path / "refused").exists()
        return str(error)

    def with_file(path: Path) -> list[str]:
        return [t for name in "AB" for t in ("--client-properties", f"{name}={path}")]

    wrong = properties(tmp_path / "wrong.properties", made, mechanism="PLAIN", password="guessed")
    assert "refuses reader" in said(*with_file(wrong))
    strangers = certificates(tmp_path / "strangers")
    unknown = properties(tmp_path / "unknown.properties", strangers)
    assert "is not trusted" in said(*with_file(unknown))
    known = properties(tmp_path / "plain.properties", made, mechanism="PLAIN")
    hidden = said(*with_file(known), "--topics", "secret")
    assert "no topic of A, B matches --topics 'secret': they have A." in hidden
    twice = said(*with_file(known), where={**bootstrap, "B": bootstrap["A"]})
    assert re.search(r"A and B are one cluster \(cluster.id \S+\)", twice)
    late = said(*with_file(known), "--promotion", f"B:{TOPIC}-0=1000000")
    assert f"B:{TOPIC}-0=1000000 is beyond the end of that log" in late
    nowhere = {**bootstrap, "A": f"127.0.0.1:{deployment.free_port()}"}
    assert "cluster A does not answer at 127.0.0.1:" in said(
        *with_file(known), where=nowhere, kind=EnvironmentFailure
    )


class Quiet:
    def phase(self, name: str) -> None:
        pass

    def note(self, text: str) -> None:
        pass


def gone_half_way(
    deployment: Deployment, bootstrap: dict[str, str], credentials: Path, tmp_path: Path
) -> None:
    """A's broker dies before its second portion is read: what was read is compared, and the verdict
    is unknown."""
    out = tmp_path / "gone"
    (broker,) = deployment.clusters["A"].brokers.values()

    def kill() -> None:
        eventually(
            "a portion of A",
            lambda: any(path.stat().st_size for path in out.glob("captures/*/A/*/*/*.log")),
        )
        broker.kill()

    asked = LiveLogsRequest(
        request=LogsRequest(
            logs={name: tmp_path / name for name in bootstrap},
            links=[LinkSpec(source="A", destination="B")],
            promotions={},
            topics=r"A\.records",
        ),
        bootstrap={name: [address] for name, address in bootstrap.items()},
        access={name: access(credentials) for name in bootstrap},
        rate=10_000.0,
        patience=10.0,
    )
    killer = threading.Thread(target=kill)
    killer.start()
    record(out, asked, "linkflap verify --bootstrap", Quiet())
    killer.join(60)
    broker.start()
    run = RunReader(out).run
    assert run.status == "failed"
    assert re.search(r"of A only A\.records-\d up to [1-9]\d*", run.error), run.error
    judgement = judged_again(out)
    assert judgement.verdict is Verdict.UNKNOWN, judgement.document["anomalies"]
    assert judgement.verdict.exit_code == 2
    by_name = {check.name: check for check in judgement.checks}
    assert "it went away" in by_name["recording"].reason
    assert by_name["byte-equality"].verdict is Verdict.VALID
    assert by_name["byte-equality"].examined["B/mirrored"] > 0


def diverged(
    deployment: Deployment, bootstrap: dict[str, str], entered: list[str], tmp_path: Path
) -> None:
    """Both clusters are written to: invalid, unless B is declared as promoted."""
    (end,) = ends(deployment.clusters["B"], partitions=[(TOPIC, 0)]).values()
    assert own_write(deployment.clusters["B"].bootstrap) == end
    assert own_write(deployment.clusters["A"].bootstrap) == end
    code, document = verified(bootstrap, tmp_path / "diverged", *entered)
    assert (code, document["verdict"]) == (1, "invalid")
    found = {(a["kind"], a["cluster"], a["partition"], a["offset"]) for a in document["anomalies"]}
    assert found == {("byte-divergence", "B", 0, end)}
    code, document = verified(
        bootstrap, tmp_path / "promoted", *entered, "--promotion", f"B:{TOPIC}-0={end}"
    )
    assert (code, document["verdict"]) == (0, "valid"), document["reason"]


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.linkflap(topology="A:3->B")
def test_a_leader_that_moves_is_followed(linkflap_deployment: Deployment, tmp_path: Path) -> None:
    """The leader that is being read dies: another one has the same bytes."""
    deployment = linkflap_deployment
    make_topic(deployment, "A", min_insync_replicas=2)
    cluster = deployment.clusters["A"]
    Writer(cluster.bootstrap).write(12, size=1000)
    out = tmp_path / "fetched"
    lines: list[str] = []

    def kill() -> None:
        eventually(
            "a portion",
            lambda: lines or any(p.stat().st_size for p in out.glob("captures/*/A/*/*/*.log")),
        )
        (first,) = (p for p in out.glob("captures/*/A/*/*/*.log") if p.stat().st_size)
        cluster.brokers[int(first.parent.parent.name)].kill()

    asked = LiveLogsRequest(
        request=LogsRequest(logs={"A": tmp_path}, links=[], promotions={}, topics=r"A\.records"),
        bootstrap={"A": cluster.bootstrap.split(",")},
        access={},
        rate=10_000.0,
    )
    killer = threading.Thread(target=kill)
    killer.start()
    try:
        record(out, asked, "linkflap verify --bootstrap", Quiet())
    finally:
        lines.append("over")
        killer.join(60)
    assert RunReader(out).run.status == "finished"
    assert [broker.state for broker in cluster.brokers.values()].count("stopped") == 1
    (left, *_) = (broker for broker in cluster.brokers.values() if broker.state == "running")
    for tp in TOPIC_PARTITIONS:
        (path,) = out.glob(f"captures/*/A/*/{tp[0]}-{tp[1]}/*.log")
        found = scan([path])
        wanted = headers(left, tp)
        assert not found.damage
        assert found.headers.crc_ok.all()
        assert {name: getattr(found.headers, name).tolist() for name in SAME} == {
            name: wanted[name] for name in SAME
        }


# `linkflap verify --bootstrap --mirror mm2`: a MirrorMaker 2 that runs, and records of clients
# that are not linkflap's.


def fetched(deployment: Deployment, folder: Path, *, named: bool = True) -> Judgement:
    addresses = {name: [deployment.clusters[name].bootstrap] for name in "AB"}
    request = LogsRequest(
        logs={name: Path(name) for name in "AB"},
        links=[LinkSpec(source="A", destination="B")],
        promotions={},
        kind="mm2" if named else "exact",
        mirror_named=named,
    )
    with shown_on() as progress:
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
