"""Specific to the docker runtime: its errors, an engine that dies, and third-party and missing
images."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import platform
import socket
import subprocess
import tarfile
import threading
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import pytest

from linkflap.api.deploy import deploy
from linkflap.harness.machine import cleanup, ledger, process_identity
from linkflap.harness.machine.leases import Lease
from linkflap.harness.machine.process_identity import Identity
from linkflap.harness.model.errors import EnvironmentFailure, SetupError
from linkflap.harness.model.events import RecorderDied
from linkflap.harness.model.topology import DEFAULT_KAFKA, ClusterSpec
from linkflap.harness.rundir import RunReader
from linkflap.harness.runtimes import runtime
from linkflap.harness.runtimes.distribution.kafka import kafka
from tests.command_line import environment, harness, linkflap, use_ledger
from tests.on_runtimes import (
    HARNESS,
    Events,
    create,
    existing,
    of,
    produce,
    skip_without,
    topology,
    volumes_of,
)
from tests.waiting import eventually


def test_a_container_that_was_removed_is_a_dead_broker(engine: Any, tmp_path: Path) -> None:
    with runtime("docker")(
        topology(ClusterSpec(name="A")), folder=tmp_path, recorder=Events()
    ) as deployment:
        broker = deployment.clusters["A"].brokers[1]
        mine = {"label": "linkflap.deployment", "name": "a-1"}
        (container,) = [
            c
            for c in engine.containers.list(filters=mine)
            if c.name in of(engine, ledger.own().owner)
        ]
        container.remove(force=True)
        assert broker.state == "stopped"
        with pytest.raises(SetupError, match="could not start container a-1"):
            broker.start()


@pytest.mark.parametrize(
    ("host", "topology", "said"),
    [
        ("tcp://127.0.0.1:1", "A->B", "no Docker engine answers (Connection refused)"),
        (
            "tcp://engine.example:2375",
            "A->B",
            "the Docker engine at tcp://engine.example:2375 is another machine's",
        ),
        ("", 'A@"127.0.0.1:1/kafka:4.3.1"->B', "could not pull 127.0.0.1:1/kafka:4.3.1"),
    ],
)
def test_missing_engine_or_image_ends_a_run_with_one_sentence_and_255(
    tmp_path: Path, host: str, topology: str, said: str
) -> None:
    if not host:
        skip_without("docker")
    env = environment(tmp_path / "ledger", **({"DOCKER_HOST": host} if host else {}))
    words = ["run", "baseline", "--runtime", "docker", "--out", "run", "--topology", topology]
    done = linkflap(words, env=env, cwd=tmp_path, within=300)
    assert done.returncode == 255
    (sentence,) = [line for line in done.stderr.splitlines() if line.startswith("linkflap: ")]
    assert said in sentence
    assert not (tmp_path / "run").exists(), "nothing ran, and the same command can be given again"


@pytest.mark.nightly
def test_a_full_disk_of_this_machine_is_one_sentence(tmp_path: Path, engine: Any) -> None:
    full = tmp_path / "full"
    full.mkdir()
    try:
        ledger.mount(full, size=1 << 17)
    except OSError as error:
        pytest.skip(f"no small disk can be made here: {error}")
    try:
        env = environment(tmp_path / "ledger")
        command = f"run baseline --runtime docker --out {full / 'run'}"
        done = linkflap(command, env=env, cwd=tmp_path, within=300)
    finally:
        ledger.unmount(full)
    assert done.returncode in (254, 255)
    assert "no space left for the run directory" in done.stderr
    assert "Traceback" not in done.stderr


def test_errors_of_the_engine_are_of_the_environment(engine: Any) -> None:
    from docker.errors import APIError

    from linkflap.harness.runtimes.docker.engine import asked

    with (
        pytest.raises(EnvironmentFailure, match="could not fill the glass"),
        asked("fill the glass"),
    ):
        raise APIError("no water")


class Relay:
    """A proxy to the engine that a test can end: the engine itself is shared."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._server = socket.create_server(("127.0.0.1", port))
        self._ends: list[socket.socket] = [self._server]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._server.accept()
                far = socket.socket(socket.AF_UNIX)
                far.connect("/var/run/docker.sock")
                self._ends += [near, far]
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=(one, other), daemon=True).start()

    @staticmethod
    def _pump(one: Any, other: Any) -> None:
        with contextlib.suppress(OSError):
            while content := one.recv(1 << 16):
                other.sendall(content)
            other.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def test_an_engine_that_dies_is_one_sentence_and_what_is_left_is_removed_when_it_is_back(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not os.path.exists("/var/run/docker.sock") or os.environ.get("DOCKER_HOST"):
        pytest.skip("the engine is not at its usual place, where this test can stand between")
    use_ledger(monkeypatch, tmp_path / "runtime")
    lease = Lease()
    (port,) = lease.ports(1)
    relay = Relay(port)
    monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{port}")
    with contextlib.ExitStack() as afterwards:
        afterwards.callback(lease.release)
        afterwards.callback(lambda: relay.close())
        process, _ = afterwards.enter_context(harness(HARNESS, stderr=subprocess.PIPE))
        owner = cast(Identity, process_identity.identify(process.pid))
        assert len(of(engine, owner)) == 3
        relay.close()
        _, said = process.communicate("go on\n", timeout=600)
        last = said.strip().splitlines()[-1]
        assert last.startswith(
            "linkflap.harness.model.errors.EnvironmentFailure: the Docker engine could not"
        )
        assert "Connection refused" in last
        assert (
            "containers may run on there: when it answers again, remove them with `linkflap clean`"
            in last
        )
        (entry,) = [entry for entry in ledger.entries() if entry.owner == owner]
        assert entry.ports, "its containers have them"
        assert len(of(engine, owner)) == 3, "the engine was away when they were to be removed"
        relay = Relay(port)

        def gone() -> bool:
            cleanup.clean()
            return not of(engine, owner)

        eventually("its things to be gone", gone, state=lambda: of(engine, owner))


@pytest.mark.nightly
def test_twenty_starts_in_a_row(engine: Any, tmp_path: Path) -> None:
    for number in range(20):
        with runtime("docker")(
            topology(ClusterSpec(name="A")), folder=tmp_path / str(number), recorder=Events()
        ) as deployment:
            deployment.clusters["A"].brokers[1].kill()
            deployment.clusters["A"].brokers[1].start()
    assert of(engine, ledger.own().owner) == []


# Third-party and missing images: what runs on them, and how others are refused.


def laid_out_as_released(engine: Any, name: str, *lines: str) -> None:
    """An image as others build them: with an entry point, a user and volumes of its own."""
    from linkflap.harness.runtimes.docker.images import kafka_image

    recipe = "\n".join(
        [
            f"FROM {kafka_image.ready(kafka(DEFAULT_KAFKA)).tag}",
            *lines,
            'ENTRYPOINT ["/none"]',
            'VOLUME ["/var/lib/kafka/data"]',
        ]
    )
    engine.images.build(fileobj=io.BytesIO(recipe.encode()), tag=name, rm=True)


@pytest.mark.nightly
def test_an_image_of_another_project_runs_as_one_of_the_clusters(
    engine: Any, tmp_path: Path
) -> None:
    name = f"linkflap-test/kafka:of-{os.getpid()}"
    laid_out_as_released(engine, name, "USER 1000")
    try:
        asked = topology(ClusterSpec(name="A", kafka=name), ClusterSpec(name="B"), links=("A->B",))
        with runtime("docker")(asked, folder=tmp_path, recorder=Events()) as deployment:
            assert {cluster.kafka for cluster in deployment.clusters.values()} == {DEFAULT_KAFKA}
            create(deployment.clusters["A"], "mine")
            assert produce(deployment.links["A->B"].bootstrap, "mine", b"x") == 0
            mounted = volumes_of(engine, ledger.own().owner)
            assert mounted, "the image has a volume"
        assert not existing(engine, mounted)
    finally:
        engine.images.remove(name, force=True)


def test_an_image_without_a_kafka_or_for_another_machine_is_refused(
    engine: Any, tmp_path: Path
) -> None:
    from linkflap.harness.runtimes.docker.images import custom_image, kafka_image

    plain, other = f"linkflap-test/none:{os.getpid()}", f"linkflap-test/other:{os.getpid()}"
    load_for(engine, other, architecture="arm64" if platform.machine() == "x86_64" else "amd64")
    load_for(
        engine,
        plain,
        architecture={"x86_64": "amd64", "aarch64": "arm64"}.get(
            platform.machine(), platform.machine()
        ),
    )
    try:
        with pytest.raises(
            SetupError,
            match=f"image {other} is for .* and the Docker engine is .*; name one that is for",
        ):
            custom_image.take(other)
        with pytest.raises(SetupError, match=f"could not run java in {plain}"):
            custom_image.take(plain)
        with pytest.raises(SetupError, match=f"image {other} is for"):
            kafka_image.ready(kafka(DEFAULT_KAFKA), other)
        command = f"images check --kafka {plain}"
        done = linkflap(command, env=os.environ, cwd=tmp_path, within=300)
        assert done.returncode == 255
        assert f"could not run java in {plain}" in done.stdout
        reason = custom_image.reason_against(other)
        assert reason is not None
        assert reason.startswith(f"image {other} is for")
    finally:
        for name in (plain, other):
            engine.images.remove(name, force=True)


def test_an_image_with_a_java_and_no_kafka_is_reported_before_a_run(engine: Any) -> None:
    from linkflap.harness.runtimes.docker.images import custom_image

    name = f"linkflap-test/java:{os.getpid()}"
    laid_out_as_released(engine, name, f"LABEL of={name}")
    try:
        assert custom_image.reason_against(name) is None
        with pytest.MonkeyPatch.context() as elsewhere:
            elsewhere.setattr(custom_image, "_LIBS", ("/none",))
            assert "has no Kafka in /none" in (custom_image.reason_against(name) or "")
    finally:
        engine.images.remove(name, force=True)


@pytest.mark.parametrize(
    ("module", "names"), [("proxy_image", ("tag", "OFFICIAL")), ("python_image", ("tag",))]
)
def test_an_image_that_every_run_needs_and_that_is_missing_is_reported(
    engine: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    module: str,
    names: tuple[str, ...],
) -> None:
    from linkflap.cli.images import check

    there = import_module(f"linkflap.harness.runtimes.docker.images.{module}")
    none = "linkflap-test/none:none"
    for name in names:
        monkeypatch.setattr(there, name, (lambda: none) if callable(getattr(there, name)) else none)
    assert check.callback is not None
    assert check.callback((DEFAULT_KAFKA,), None) == 255
    assert "has no image yet; make it: linkflap images build" in capsys.readouterr().out


def test_a_java_that_cannot_run_is_quoted(engine: Any) -> None:
    from linkflap.harness.runtimes.docker.images.builds import java_in

    name = f"linkflap-test:not-java-{os.getpid()}"
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        for path, mode, content in (
            ("Dockerfile", 0o644, b"FROM scratch\nCOPY java /bin/java\nENV PATH=/bin\n"),
            ("java", 0o755, b"\x7fELF, of no machine"),
        ):
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    context.seek(0)
    engine.images.build(fileobj=context, custom_context=True, tag=name, rm=True)
    try:
        with pytest.raises(SetupError, match=r"exec format error.*; name another"):
            java_in(name, fix="name another")
    finally:
        engine.images.remove(name, force=True)


def load_for(engine: Any, name: str, *, architecture: str) -> None:
    """An empty image for some architecture, as `docker save` writes it."""
    layer = io.BytesIO()
    tarfile.open(fileobj=layer, mode="w").close()
    digest = hashlib.sha256(layer.getvalue()).hexdigest()
    config = {
        "architecture": architecture,
        "os": "linux",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    saved = io.BytesIO()
    with tarfile.open(fileobj=saved, mode="w") as tar:
        for path, content in (
            ("config.json", json.dumps(config).encode()),
            ("layer.tar", layer.getvalue()),
            ("manifest.json", json.dumps(manifest).encode()),
        ):
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    engine.images.load(saved.getvalue())


def test_a_base_that_cannot_be_pulled_is_named_with_how_to_fix_it(engine: Any) -> None:
    from linkflap.harness.runtimes.docker.images import kafka_image

    with pytest.raises(
        SetupError, match=r"could not pull the base image 127\.0\.0\.1:1/none:1 .* omit --base"
    ):
        kafka_image.ready(kafka(DEFAULT_KAFKA), "127.0.0.1:1/none:1")


def test_a_base_without_a_java_is_refused(engine: Any) -> None:
    """The user chooses the base: it is tested before anything is built on it."""
    from linkflap.harness.runtimes.docker.images import kafka_image

    empty = io.BytesIO()
    tarfile.open(fileobj=empty, mode="w").close()
    name = f"linkflap-test:no-java-{os.getpid()}"
    repository, _, tag = name.partition(":")
    engine.api.import_image_from_data(empty.getvalue(), repository=repository, tag=tag)
    try:
        with pytest.raises(SetupError, match="run java in linkflap-test"):
            kafka_image.ready(kafka(DEFAULT_KAFKA), name)
    finally:
        engine.images.remove(name)
    assert of(engine, ledger.own().owner) == []


@pytest.mark.spark
def test_rows_from_before_the_recorder_died_are_judged(engine: Any, tmp_path: Path) -> None:
    """The recorder is a container beside its cluster. Its death is an event, and what it had
    recorded is judged."""
    folder = tmp_path / "run"
    deployed = deploy(
        "A{tls+scram}",
        topics={"A.orders": 1},
        readers=False,
        record="wire",
        runtime="docker",
        folder=folder,
    )
    with deployed as w:
        login = {**w.entry("A", "client").librdkafka(), "enable.idempotence": True}
        with w.fault("program-unanswered", "A", api="Produce") as unanswered:
            for number in range(3):
                produce(w.recorded("A"), "A.orders", b"%d" % number, login=login)
        assert unanswered.bite.bit
        mine = of(engine, ledger.own().owner)
        (name,) = (name for name in mine if name.endswith("-recorder-a"))
        engine.containers.get(name).kill()
    events, _ = RunReader(folder).events()
    assert [event.cluster for event in events if isinstance(event, RecorderDied)] == ["A"]
    judged = w.verify()
    assert judged.verdict == "unknown"
    assert "the recorder of A" in judged.why
    assert judged.checks["lost-write"].examined == {"A/native": 3}
    assert not judged.anomalies
