"""Kafka jars: which are pinned, which are refused, and the error if nothing can be downloaded."""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from pathlib import Path

import pytest

from linkflap.harness.model.errors import InputError, SetupError
from linkflap.harness.model.topology import DEFAULT_KAFKA
from linkflap.harness.runtimes.distribution import kafka as kafkas
from linkflap.harness.runtimes.distribution.kafka import Pin, kafka


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LINKFLAP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def jar(folder: Path, name: str, content: bytes = b"jar") -> Pin:
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(content)
    artifact, _, version = name.removesuffix(".jar").rpartition("-")
    return Pin(
        coordinates=f"group:{artifact}:{version}", sha256=hashlib.sha256(content).hexdigest()
    )


@pytest.mark.parametrize("version", kafkas.released())
def test_every_list_has_a_broker_and_a_log_backend_and_most_have_tools_and_mirror_maker(
    version: str,
) -> None:
    names = set(kafkas.pinned(version))
    wanted = {"kafka_2.13", "kafka-clients", "kafka-server-common", "kafka-storage"}
    if not kafkas.brokers_alone(version):
        wanted |= {"kafka-tools", "connect-mirror", "connect-runtime"}
    assert {f"{name}-{version}.jar" for name in wanted} <= names
    assert any(name.startswith(("log4j-slf4j-impl-", "slf4j-reload4j-")) for name in names)
    assert all(len(pin.sha256) == 64 for pin in kafkas.pinned(version).values())


def test_the_default_version_has_a_list() -> None:
    assert DEFAULT_KAFKA in kafkas.released()


def test_the_releases_of_which_no_repository_has_all_jars() -> None:
    assert [version for version in kafkas.released() if kafkas.brokers_alone(version)] == [
        "4.0.1",
        "4.2.1",
        "4.4.0",
    ]
    assert not kafkas.brokers_alone("/some/libs")


@pytest.mark.parametrize("asked", ["4.3.99", "latest", "4.3", "image:tag"])
def test_an_unknown_version_names_the_known_ones_and_the_directory_option(asked: str) -> None:
    with pytest.raises(
        InputError, match=r"only for .*4\.3\.1.*; a directory of jars or an unpacked distribution"
    ):
        kafka(asked)


def test_a_directory_that_is_not_there() -> None:
    with pytest.raises(InputError, match="there is no directory /nowhere/kafka"):
        kafka("/nowhere/kafka")


def test_a_directory_without_kafka(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="0 kafka-clients jars"):
        kafka(str(tmp_path))


@pytest.mark.parametrize("layout", ["jars", "distribution"])
def test_a_directory_says_its_own_version(tmp_path: Path, layout: str) -> None:
    folder = tmp_path / "mine"
    libs = folder / "libs" if layout == "distribution" else folder
    libs.mkdir(parents=True)
    with zipfile.ZipFile(libs / "kafka-clients-4.4.0-SNAPSHOT.jar", "w") as archive:
        archive.writestr("kafka/kafka-version.properties", "commitId=abc\nversion=4.4.0-SNAPSHOT\n")
    (libs / "a.jar").write_bytes(b"")
    found = kafka(str(folder))
    assert found.version == "4.4.0-SNAPSHOT"
    assert [path.name for path in found.jars] == ["a.jar", "kafka-clients-4.4.0-SNAPSHOT.jar"]
    (libs / "a.jar").write_bytes(b"rebuilt")
    assert kafka(str(folder)).key != found.key, "a rebuilt Kafka must not use the old one's archive"


def test_a_wrong_checksum_names_the_jar(tmp_path: Path) -> None:
    good, bad = jar(tmp_path / "jars", "good-1.0.jar"), jar(tmp_path / "jars", "bad-1.0.jar")
    pins = {"good-1.0.jar": good, "bad-1.0.jar": bad}
    kafkas.check(pins, tmp_path / "jars")
    (tmp_path / "jars" / "bad-1.0.jar").write_bytes(b"tampered")
    with pytest.raises(
        SetupError, match=r"^bad-1\.0\.jar has sha256 \w{64} and \w{64} is pinned: .*remove it"
    ) as raised:
        kafkas.check(pins, tmp_path / "jars")
    assert "\n" not in str(raised.value)


def test_a_jar_too_few_or_too_many_is_named(tmp_path: Path) -> None:
    pin = jar(tmp_path / "jars", "here-1.0.jar")
    with pytest.raises(SetupError, match=r"gone-1\.0\.jar was not fetched"):
        kafkas.check({"here-1.0.jar": pin, "gone-1.0.jar": pin}, tmp_path / "jars")
    with pytest.raises(SetupError, match=r"here-1\.0\.jar was fetched and is not in the list"):
        kafkas.check({}, tmp_path / "jars")


def unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "http_proxy",
        "https_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "all_proxy",
        "ALL_PROXY",
    ):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)


def test_no_mvn_and_the_registry_unreachable_is_one_sentence_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, own_cache: Path, tmp_path: Path
) -> None:
    unreachable(monkeypatch)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        SetupError,
        match=r"jars of Kafka 4\.3\.1 could not be fetched with jgo .*check the network.*directory",
    ) as raised:
        kafka("4.3.1")
    assert "\n" not in str(raised.value)
    assert not [path for path in (own_cache / "kafka").iterdir() if path.is_dir()]


@pytest.mark.skipif(not shutil.which("mvn"), reason="mvn is not installed")
def test_mvn_and_the_registry_unreachable_is_one_sentence_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, own_cache: Path, tmp_path: Path
) -> None:
    closed = " ".join(
        f"-D{scheme}.proxyHost=127.0.0.1 -D{scheme}.proxyPort=1" for scheme in ("http", "https")
    )
    monkeypatch.setenv("MAVEN_OPTS", f"-Dmaven.repo.local={tmp_path / 'repository'} {closed}")
    with pytest.raises(
        SetupError,
        match=r"jars of Kafka 4\.3\.1 could not be fetched with mvn .*check the network.*directory",
    ) as raised:
        kafka("4.3.1")
    assert "\n" not in str(raised.value)
    assert not [path for path in (own_cache / "kafka").iterdir() if path.is_dir()]


def test_a_cache_that_cannot_be_made_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LINKFLAP_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(SetupError, match="set LINKFLAP_CACHE"):
        kafka("4.3.1")
