"""Names of the settings of brokers and topics. A broker only warns about an unknown name, so a typo
would go unnoticed.

`kafka/settings.names` has the names of all supported releases. It is made from the releases
themselves: `python -m linkflap.harness.runtimes.distribution.setting_names > kafka/settings.names`.
A name need not be known to the cluster's own release, because brokers may be upgraded while a
scenario runs. For a user's own build, every name in its jars is known too: the name of a setting,
also of a plug-in's, is a constant of some class.
"""

from __future__ import annotations

import functools
import re
import struct
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from linkflap.harness.jvm.bridge import Bridge
from linkflap.harness.machine.java import java_for
from linkflap.harness.runtimes.distribution.kafka import Kafka, kafka, released

BROKER: Final = "broker"
TOPIC: Final = "topic"
_NAMES: Final = Path(__file__).parent / "kafka" / "settings.names"
_HANDED_ON: Final = ("rsm.config.", "rlmm.config.")
"""Prefixes of settings that a broker passes to plug-ins for tiered storage (KIP-405), with any name
after them."""
_SERVER_SIDE: Final = "log."
"""A prefix that turns a topic's setting into the broker's default for it. Kafka composes these
names at run time (ServerTopicConfigSynonyms)."""


@functools.cache
def names(of: str) -> frozenset[str]:
    """The settings of brokers, or of topics, in a release."""
    rows = (line.split() for line in _NAMES.read_text().splitlines())
    return frozenset(name for kind, name in rows if kind == of)


def knows(of: str, name: str, build: Kafka | None = None) -> bool:
    """Whether a release, or else the user's own `build`, has such a setting."""
    if name in names(of) or (of == BROKER and name.startswith(_HANDED_ON)):
        return True
    return build is not None and _mentions(build, (name, name.removeprefix(_SERVER_SIDE)))


def _mentions(build: Kafka, words: Iterable[str]) -> bool:
    """Whether one of these is a complete constant in a class of these jars (Java Virtual Machine
    Specification, 4.4.7)."""
    constants = [b"\x01" + struct.pack(">H", len(word)) + word.encode() for word in set(words)]
    return any(
        any(constant in body for constant in constants)
        for jar in build.jars
        for body in _classes(jar)
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


def asked_of(build: Kafka, folder: Path) -> set[tuple[str, str]]:
    """The settings that a Kafka's own code lists. Starts a JVM with its jars."""
    bridge = Bridge(
        java_for(build.version), build.classpath, folder, name=f"settings-{build.version}"
    )
    try:
        brokers = bridge.java.kafka.server.KafkaConfig.configDef().names()
        topics = bridge.java.org.apache.kafka.storage.internals.log.LogConfig.configNames()
        return {
            *((BROKER, str(name)) for name in brokers),
            *((TOPIC, str(name)) for name in topics),
        }
    finally:
        bridge.close()


if __name__ == "__main__":
    found: set[tuple[str, str]] = set()
    with tempfile.TemporaryDirectory() as own:
        for each in minors(released()):
            found |= asked_of(kafka(each), Path(own))
    sys.stdout.writelines(f"{of} {name}\n" for of, name in sorted(found))
