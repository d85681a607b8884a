"""Third-party and missing images: what runs on them, and how others are refused."""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import tarfile
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from linkflap.harness.machine import ledger
from linkflap.harness.model.errors import SetupError
from linkflap.harness.model.topology import DEFAULT_KAFKA, ClusterSpec
from linkflap.harness.runtimes import runtime
from linkflap.harness.runtimes.distribution.kafka import kafka
from tests.command_line import linkflap
from tests.containers import of, volumes
from tests.on_runtimes import Events, create, produce, topology


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
def test_an_image_of_somebody_elses_runs_as_one_of_the_clusters(
    engine: Any, tmp_path: Path
) -> None:
    name = f"linkflap-test/kafka:of-{os.getpid()}"
    laid_out_as_released(engine, name, "USER 1000")
    try:
        before = volumes(engine)
        asked = topology(ClusterSpec(name="A", kafka=name), ClusterSpec(name="B"), links=("A->B",))
        with runtime("docker")(asked, folder=tmp_path, recorder=Events()) as deployment:
            assert {cluster.kafka for cluster in deployment.clusters.values()} == {DEFAULT_KAFKA}
            create(deployment.clusters["A"], "mine")
            assert produce(deployment.links["A->B"].bootstrap, "mine", b"x") == 0
        assert volumes(engine) == before
    finally:
        engine.images.remove(name, force=True)


def test_an_image_without_a_kafka_or_for_another_machine_is_refused(
    engine: Any, tmp_path: Path
) -> None:
    from linkflap.harness.runtimes.docker.images import custom_image, inventory, kafka_image

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
        done = linkflap(
            "images", "check", "--kafka", plain, env=dict(os.environ), cwd=tmp_path, within=300
        )
        assert done.returncode == 255
        assert f"could not run java in {plain}" in done.stdout
        reason = inventory.reason_against(other)
        assert reason is not None
        assert reason.startswith(f"image {other} is for")
    finally:
        for name in (plain, other):
            engine.images.remove(name, force=True)


def test_an_image_with_a_java_and_no_kafka_is_reported_before_a_run(engine: Any) -> None:
    from linkflap.harness.runtimes.docker.images import custom_image, inventory

    name = f"linkflap-test/java:{os.getpid()}"
    laid_out_as_released(engine, name, f"LABEL of={name}")
    try:
        assert inventory.reason_against(name) is None
        with pytest.MonkeyPatch.context() as elsewhere:
            elsewhere.setattr(custom_image, "_LIBS", ("/none",))
            assert "has no Kafka in /none" in (inventory.reason_against(name) or "")
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
