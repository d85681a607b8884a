"""Kafka's jars: exactly the pinned jars of a release, or any Kafka that is already on this machine.

`kafka/<version>.sha256` lists the jars of a release, with coordinates and sha256: every jar that a
broker, its tools and MirrorMaker need. For some releases it lists only a broker's
(`brokers_alone`). mvn downloads the jars once into the user's cache, with its settings, mirrors and
proxies; without mvn, the PyPI package jgo does. A missing, additional or different jar is an error.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import zipfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from linkflap.harness.machine import cache, children
from linkflap.harness.machine.java import java_for
from linkflap.harness.model.errors import EnvironmentFailure, InputError, SetupError

_LISTS: Final = Path(__file__).parent / "kafka"
_FETCH_WITHIN: Final = 900.0
_ATTEMPTS: Final = 3
MAVEN_PLUGIN: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
_OWN_BUILD: Final = (
    "a directory of jars or an unpacked distribution can be named instead of a version"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kafka:
    """A Kafka that can be run. `version` is the version in its own jars; `key` is its unique name
    in the cache."""

    version: str
    jars: tuple[Path, ...]
    key: str

    @property
    def classpath(self) -> str:
        """Sorted, because a class archive is only valid for the class path that it was made
        with."""
        return ":".join(str(jar) for jar in self.jars)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """One line of a list: Maven coordinates and the sha256 of that jar."""

    coordinates: str
    sha256: str

    @property
    def name(self) -> str:
        _, *rest = self.coordinates.split(":")
        return "-".join(rest) + ".jar"


def released() -> list[str]:
    """The versions that have a list, oldest first."""
    names = [path.name.removesuffix(".sha256") for path in _LISTS.glob("*.sha256")]
    return sorted(names, key=lambda version: [int(part) for part in version.split(".")])


def kafka(asked: str) -> Kafka:
    """The Kafka for a `ClusterSpec.kafka`. Raises InputError (it does not exist) or SetupError (it
    cannot be downloaded)."""
    return look_for(asked) or _released(asked)


def look_for(asked: str) -> Kafka | None:
    """The Kafka in a folder of this machine; None for a version that has a list. Raises InputError;
    downloads nothing."""
    if not asked.strip():
        raise InputError(
            "an empty name is no Kafka; name a version such as 4.3.1, or a directory of jars"
        )
    path = Path(asked).expanduser()
    if re.fullmatch(r"\d+\.\d+\.\d+", asked) or not (path.is_dir() or "/" in asked):
        pinned(asked)
        return None
    if not path.is_dir():
        raise InputError(
            f"there is no directory {asked}; {_OWN_BUILD}, and an image only in the docker runtime"
        )
    return _local(path / "libs" if (path / "libs").is_dir() else path)


def brokers_alone(asked: str) -> bool:
    """Whether the list of this release only has the jars of a broker, because no repository has its
    MirrorMaker."""
    return asked in released() and not any(
        name.startswith("connect-mirror-") for name in pinned(asked)
    )


def described(version: str) -> str:
    return f"Kafka {version}"


def cached(version: str) -> Path | None:
    """The folder with the jars of a released version, if they were downloaded."""
    return cache.kept(_name(version))


def _name(version: str) -> str:
    return f"kafka/{version}"


def _tool() -> str:
    """The tool that downloads jars here."""
    return "mvn" if shutil.which("mvn") else "jgo"


CLIENTS_JAR: Final = re.compile(
    r"kafka-clients-(?!(?:.*-)?(?:tests?|sources|javadoc|test-fixtures|test-sources)\.jar$).+\.jar"
)
"""The jar of the clients, of whatever version: a build's may be a branch or a commit. Beside it a
build leaves those of its tests and sources."""


def _local(folder: Path) -> Kafka:
    jars = tuple(sorted(folder.resolve().glob("*.jar")))
    clients = [jar for jar in jars if CLIENTS_JAR.fullmatch(jar.name)]
    if len(clients) != 1:
        raise InputError(
            f"{folder} has {len(clients)} kafka-clients jars and must have one; name a directory "
            "with all jars of one Kafka"
        )
    state = "".join(f"{jar}{jar.stat().st_size}{jar.stat().st_mtime_ns}" for jar in jars)
    return Kafka(
        version=_version_in(clients[0]),
        jars=jars,
        key=f"local-{hashlib.sha256(state.encode()).hexdigest()[:16]}",
    )


BROKER_CLASSES: Final = (
    "kafka.Kafka",
    "kafka.tools.StorageTool",
    "org.apache.kafka.controller.QuorumController",
    "org.apache.kafka.raft.KafkaRaftClient",
    "org.apache.kafka.coordinator.group.GroupCoordinator",
)
"""What linkflap starts, and one class each of some of Kafka's other jars that a broker loads."""


def check_broker(kafka: Kafka) -> None:
    """Raises InputError for a folder that lacks classes of a broker."""
    lacking = {name: f"{name.replace('.', '/')}.class" for name in BROKER_CLASSES}
    for path in kafka.jars:
        try:
            with zipfile.ZipFile(path) as jar:
                inside = set(jar.namelist())
        except (OSError, zipfile.BadZipFile) as error:
            raise InputError(f"{path} is not a readable jar ({error}); build it again") from error
        lacking = {name: file for name, file in lacking.items() if file not in inside}
    if lacking:
        raise InputError(
            f"{kafka.jars[0].parent} has no jar with {', '.join(lacking)}, without which no broker "
            "starts; name a directory with all jars of one Kafka"
        )


def _version_in(clients: Path) -> str:
    """The version of kafka-clients, from its kafka/kafka-version.properties."""
    try:
        with zipfile.ZipFile(clients) as jar:
            text = jar.read("kafka/kafka-version.properties").decode()
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise InputError(
            f"{clients} is not a readable kafka-clients jar ({error}); build or unpack that Kafka "
            "again"
        ) from error
    found = re.search(r"^version=(\S+)", text, re.MULTILINE)
    return found[1] if found else "unknown"


def _released(version: str) -> Kafka:
    pins = pinned(version)
    doing = f"fetching the {len(pins)} jars of Kafka {version} with {_tool()}"
    folder = cache.once(
        _name(version),
        lambda target: _fetch(version, pins, target),
        doing=doing,
        downloads=described(version),
    )
    jars = tuple(sorted(folder.glob("*.jar")))
    if {jar.name for jar in jars} != pins.keys():
        odd = sorted({jar.name for jar in jars} ^ pins.keys())
        raise SetupError(
            f"{folder} has not the jars it was filled with ({', '.join(odd[:3])}); remove that "
            "folder"
        )
    return Kafka(version=version, jars=jars, key=version)


def pinned(version: str) -> Mapping[str, Pin]:
    """The list of one version: file name -> pin. Raises InputError when there is none."""
    path = _LISTS / f"{version}.sha256"
    if not re.fullmatch(r"\d+\.\d+\.\d+", version) or not path.is_file():
        raise InputError(
            f"no list of jars is kept for Kafka {version!r}, only for {', '.join(released())}; "
            f"{_OWN_BUILD}"
        )
    pins = [
        Pin(sha256=line.split()[0], coordinates=line.split()[1])
        for line in path.read_text().splitlines()
    ]
    return {pin.name: pin for pin in pins}


def _fetch(version: str, pins: Mapping[str, Pin], target: Path) -> None:
    maven = shutil.which("mvn")
    if maven:
        _fetch_with_maven(maven, version, pins, target)
    else:
        _fetch_with_jgo(version, pins, target)
    check(pins, target)


def check(pins: Mapping[str, Pin], folder: Path) -> None:
    """Raises SetupError when a jar is missing, additional, or not the pinned one."""
    found = {jar.name: jar for jar in folder.glob("*.jar")}
    if odd := sorted(found.keys() ^ pins.keys()):
        kind = "was not fetched" if odd[0] in pins else "was fetched and is not in the list"
        raise SetupError(f"{odd[0]} {kind}; look at the settings of mvn, {_OWN_BUILD}")
    for name, jar in sorted(found.items()):
        digest = hashlib.sha256(jar.read_bytes()).hexdigest()
        if digest != pins[name].sha256:
            raise SetupError(
                f"{name} has sha256 {digest} and {pins[name].sha256} is pinned: what was fetched is"
                " not the release; remove it from the local Maven repository and look at the "
                "mirror it came from"
            )


def _fetch_with_maven(maven: str, version: str, pins: Mapping[str, Pin], target: Path) -> None:
    pom = target / "pom.xml"
    pom.write_text(_pom(pins))
    command = [
        maven,
        "-q",
        "-B",
        "-f",
        str(pom),
        f"{MAVEN_PLUGIN}:copy-dependencies",
        f"-DoutputDirectory={target}",
    ]
    if not cache.home_is_writable():
        command.append(f"-Dmaven.repo.local={target / 'repository'}")
    output = target / "mvn.log"
    # mvn may be there without a Java of its own
    environment = {"JAVA_HOME": str(java_for(version).home)}
    try:
        status = children.run(
            command,
            name="mvn",
            folder=target,
            output=output,
            within=_FETCH_WITHIN,
            environment=environment,
        )
    except EnvironmentFailure as error:
        raise _unreachable(version, "mvn", str(error)) from error
    printed = output.read_text(errors="replace")
    if status:
        raise _unreachable(version, "mvn", cause(printed))
    pom.unlink()
    output.unlink()
    shutil.rmtree(target / "repository", ignore_errors=True)


def cause(printed: str) -> str:
    """Why Maven failed, of all that it printed: not what it was doing, and not its advice."""
    (line, *_) = re.findall(r"\[ERROR\] +(\S.*)", printed) or [printed[-200:]]
    line = re.sub(r" -> \[Help \d+\]|transfer failed for \S+: ", "", line)
    found = re.search(r"Could not (?:transfer|find) artifact .*", line)
    return found[0] if found else line


def _pom(pins: Mapping[str, Pin]) -> str:
    everything = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
    every = f"<exclusions>{everything}</exclusions>"
    dependencies = []
    for pin in pins.values():
        group, artifact, version, *classifier = pin.coordinates.split(":")
        extra = f"<classifier>{classifier[0]}</classifier>" if classifier else ""
        dependencies.append(
            f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
            f"{extra}{every}</dependency>"
        )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>linkflap</groupId><artifactId>kafka</artifactId>"
        f"<version>1</version><dependencies>{''.join(dependencies)}</dependencies></project>"
    )


def _fetch_with_jgo(version: str, pins: Mapping[str, Pin], target: Path) -> None:
    from jgo.maven import MavenContext  # slow to import, and needed once per cache

    # A separate repository: after an interruption, jgo leaves an incomplete file and would treat it
    # as complete next time.
    repository = target / "repository"
    context = MavenContext(repo_cache=repository, timeout=60)

    def fetch(pin: Pin) -> None:
        group, artifact, number, *classifier = pin.coordinates.split(":")
        component = context.project(group, artifact).at_version(number)
        found = component.artifact(classifier[0] if classifier else "", "jar").resolve()
        found.replace(target / pin.name)

    missing = list(pins.values())
    for attempt in range(_ATTEMPTS):
        failed: list[Pin] = []
        pool = ThreadPoolExecutor(8)
        try:
            for pin, future in [(pin, pool.submit(fetch, pin)) for pin in missing]:
                error = future.exception()
                if error is None:
                    continue
                if not isinstance(error, (OSError, RuntimeError)) or attempt == _ATTEMPTS - 1:
                    raise _unreachable(version, "jgo", f"{pin.name}: {error}") from error
                failed.append(pin)
        finally:
            # after Ctrl-C, downloads in progress are not awaited
            pool.shutdown(wait=False, cancel_futures=True)
        shutil.rmtree(repository, ignore_errors=True)
        missing = failed


def _unreachable(version: str, tool: str, reason: str) -> SetupError:
    short = reason.strip().split("\n")[0][:300]
    return SetupError(
        f"the jars of Kafka {version} could not be fetched with {tool} ({short}); "
        f"check the network, and {tool}'s settings of mirrors and proxies; {_OWN_BUILD}"
    )
