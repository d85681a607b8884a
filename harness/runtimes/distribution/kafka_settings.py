"""Names and values of the settings of brokers, topics and clients. Kafka only warns about an
unknown name, so a typo would go unnoticed; a value that is wrong would end it after linkflap has
waited.

`kafka/settings.names` has the settings of all supported releases, each with its type, and with its
values where Kafka's ConfigDef lists them or has a range: the union of all releases. It is made from
the releases themselves: `python -m linkflap.harness.runtimes.distribution.kafka_settings >
kafka/settings.names`. A name need not be known to the cluster's own release, because brokers may be
upgraded while a scenario runs. For a user's own build, every name in its jars is known too: the
name of a setting, also of a plug-in's, is a constant of some class, or several: prefixes that end
with a dot, and the rest (`plugin.` `storage.` `bucket.name`).
"""

from __future__ import annotations

import contextlib
import functools
import math
import re
import sys
import tempfile
import zipfile
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from linkflap.harness.jvm import Bridge
from linkflap.harness.machine.java import java_for
from linkflap.harness.runtimes.distribution.kafka import Kafka, kafka, released

BROKER: Final = "broker"
TOPIC: Final = "topic"
PRODUCER: Final = "producer"
CONSUMER: Final = "consumer"
_NAMES: Final = Path(__file__).parent / "kafka" / "settings.names"
_HANDED_ON: Final = ("rsm.config.", "rlmm.config.")
"""Prefixes of settings that a broker passes to plug-ins for tiered storage (KIP-405), with any name
after them."""
_SERVER_SIDE: Final = "log."
"""A prefix that turns a topic's setting into the broker's default for it. Kafka composes these
names at run time (ServerTopicConfigSynonyms)."""


_SMALLEST: Final = {"SHORT": -(2**15), "INT": -(2**31), "LONG": -(2**63)}
_WHOLE: Final = re.compile(r"[+-]?\d+")
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
"""As Java reads them; Python also reads `1_000` and `inf`."""
_RANGE: Final = re.compile(r"\[(?P<low>-?[\d.E]+,)?\.\.\.(?P<high>,-?[\d.E]+)?\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The values of a setting: its ConfigDef.Type, all its texts (none: any), and its range."""

    type: str
    choices: tuple[str, ...] = ()
    low: float = -math.inf
    high: float = math.inf

    @classmethod
    def of(cls, type: str, validator: str) -> Setting:
        """A ConfigDef key: its type, and its validator as text; `[1,...]`, `[a, b]`, or none."""
        if found := _RANGE.fullmatch(validator):
            low, high = ((found[n] or "").strip(",") for n in ("low", "high"))
            return cls(type=type, low=float(low or -math.inf), high=float(high or math.inf))
        if type in ("STRING", "LIST") and re.fullmatch(r"\[[\w-]+(, [\w-]+)*\]", validator):
            return cls(type=type, choices=tuple(sorted(validator[1:-1].split(", "))))
        return cls(type=type)

    def __or__(self, other: Setting) -> Setting:
        """What one of two releases takes."""
        if self.type != other.type:
            return Setting(type="STRING")
        every = self.choices and other.choices and {*self.choices, *other.choices}
        return Setting(
            type=self.type,
            choices=tuple(sorted(every)),
            low=min(self.low, other.low),
            high=max(self.high, other.high),
        )

    def __str__(self) -> str:
        """As a line of the file has it."""
        if self.choices:
            return f"{self.type} [{', '.join(self.choices)}]"
        ends = [f"{end:.15g}" if math.isfinite(end) else "" for end in (self.low, self.high)]
        low, high = ends[0] and f"{ends[0]},", ends[1] and f",{ends[1]}"
        return f"{self.type} [{low}...{high}]" if low or high else self.type

    def takes(self, value: str) -> bool:
        """Whether Kafka can read a value of a properties file as one of this setting."""
        value = value.strip()
        if self.type == "BOOLEAN":
            return value.lower() in ("true", "false")
        if self.choices:
            words = [each.strip() for each in value.split(",")] if self.type == "LIST" else [value]
            empty = self.type == "LIST" and not value
            return empty or all(word in self.choices for word in words)
        if self.type not in (*_SMALLEST, "DOUBLE"):
            return True
        if not (_NUMBER if self.type == "DOUBLE" else _WHOLE).fullmatch(value):
            return False
        number = float(value) if self.type == "DOUBLE" else int(value)
        least = _SMALLEST.get(self.type, -math.inf)
        return max(self.low, least) <= number <= min(self.high, -least - 1)

    @property
    def legal(self) -> str:
        """What to give, in words."""
        if self.type == "BOOLEAN":
            return "true or false"
        if self.choices:
            return f"{'some' if self.type == 'LIST' else 'one'} of {', '.join(self.choices)}"
        number = "a number" if self.type == "DOUBLE" else "a whole number"
        high = min(self.high, 2**31 - 1) if self.type == "INT" else self.high
        if math.isfinite(self.low) and math.isfinite(high):
            return f"{number} from {self.low:.15g} to {high:.15g}"
        return f"{number} of {self.low:.15g} or more" if math.isfinite(self.low) else number


_BEYOND: Final = {
    "compression.gzip.level": Setting(type="INT", choices=("-1", *map(str, range(1, 10)))),
    "offsets.topic.compression.codec": Setting(type="INT", low=0, high=4),
    "share.coordinator.state.topic.compression.codec": Setting(type="INT", low=0, high=4),
}
"""Values that Kafka reads in code beside its ConfigDef (GzipCompression, CompressionType.forId)."""


@functools.cache
def settings(of: str) -> Mapping[str, Setting]:
    """The settings of brokers, topics, producers or consumers, in any release."""
    rows = (line.split(" ", 3) for line in _NAMES.read_text().splitlines())
    return {
        name: _BEYOND.get(name) or Setting.of(type, *values or [""])
        for kind, name, type, *values in rows
        if kind == of
    }


def knows(of: str, name: str, build: Kafka | None = None) -> bool:
    """Whether a release, or else the user's own `build`, has such a setting."""
    if name in settings(of) or (of == BROKER and name.startswith(_HANDED_ON)):
        return True
    if build is None:
        return False
    found = _constants(build)
    return any(_composed(each, found) for each in (name, name.removeprefix(_SERVER_SIDE)))


def has_class(build: Kafka, name: str) -> bool:
    """Whether the jars of a build have a class of this name."""
    wanted = f"{name.replace('.', '/')}.class"
    for path in build.jars:
        with contextlib.suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(path) as jar:
            if wanted in jar.NameToInfo:
                return True
    return False


def _composed(name: str, found: Collection[str]) -> bool:
    """Whether a name is one of these constants, or a prefix with its dot and such a name."""
    return name in found or any(
        name[: dot.end()] in found and _composed(name[dot.end() :], found)
        for dot in re.finditer(r"\.", name)
    )


def similar(name: str, build: Kafka) -> set[str]:
    """Names of a build's own that `name` may be a misspelling of: its known prefixes, if it has
    some, and a constant about as long as the rest."""
    found = _constants(build)
    prefixes = {0, *(dot.end() for dot in re.finditer(r"\.", name))}
    return {
        name[:end] + each
        for end in prefixes
        if not end or _composed(name[:end], found)
        for each in found
        if "." in each[:-1] and each[-1] != "." and abs(len(each) + end - len(name)) <= _MISSPELT
    }


_MISSPELT: Final = 2
"""By how many characters a misspelling is longer or shorter."""

_CONSTANT: Final = re.compile(rb"(?=\x01\x00([\x01-\x7f])([a-z][a-z0-9.-]*))")


@functools.cache
def _constants(build: Kafka) -> frozenset[str]:
    """What may be a part of a setting's name, of all constants in the classes of these jars (Java
    Virtual Machine Specification, 4.4.7)."""
    return frozenset(
        text[: size[0]].decode()
        for jar in build.jars
        for body in _classes(jar)
        for size, text in _CONSTANT.findall(body)
        if size[0] <= len(text)
    )


def _classes(jar: Path) -> Iterable[bytes]:
    try:
        with zipfile.ZipFile(jar) as inside:
            yield from (
                inside.read(entry)
                for entry in inside.infolist()
                if entry.filename.endswith(".class")
            )
    except (OSError, zipfile.BadZipFile):  # whoever starts it will say so
        return


def minors(versions: Iterable[str]) -> list[str]:
    """The newest patch of each minor release, because patches add no settings."""
    newest: dict[str, str] = {}
    for version in versions:
        match = re.match(r"\d+\.\d+", version)
        newest[match.group() if match else version] = version
    return list(newest.values())


def asked_of(build: Kafka, folder: Path) -> Mapping[tuple[str, str], Setting]:
    """The settings that a Kafka's own code lists. Starts a JVM with its jars."""
    from py4j.java_gateway import get_field

    bridge = Bridge(
        java_for(build.version), build.classpath, folder, name=f"settings-{build.version}"
    )
    try:
        logs = bridge.java.org.apache.kafka.storage.internals.log
        clients = bridge.java.org.apache.kafka.clients
        every = {
            BROKER: bridge.java.kafka.server.KafkaConfig.configDef().configKeys(),
            TOPIC: logs.LogConfig.configDefCopy().configKeys(),
            PRODUCER: clients.producer.ProducerConfig.configDef().configKeys(),
            CONSUMER: clients.consumer.ConsumerConfig.configDef().configKeys(),
        }
        return {
            (of, str(name)): Setting.of(
                str(get_field(key, "type")), str(get_field(key, "validator") or "")
            )
            for of, keys in every.items()
            for name, key in keys.items()
        }
    finally:
        bridge.close()


if __name__ == "__main__":
    found: dict[tuple[str, str], Setting] = {}
    with tempfile.TemporaryDirectory() as own:
        for release in minors(released()):
            for name, setting in asked_of(kafka(release), Path(own)).items():
                found[name] = found.get(name, setting) | setting
    sys.stdout.writelines(f"{of} {name} {found[of, name]}\n" for of, name in sorted(found))
