"""The notation of topologies: `parse` reads it, `arrows` writes it, and each is the inverse of the
other. `rows` writes a topology for people.

    topology := paths | cluster | named
             one cluster without a link: A, A:3; its name begins with a capital letter
    paths    := path ("," | ";") path …             A->B, A->C        several paths: fan-out, fan-in
    path     := cluster (("->" | "<->") cluster)+   A->B->C           A<->B is A->B and B->A
    cluster  := name ["@" kafka] [":" brokers] ["{" security "}"]       A@3.9.2:3{tls+scram}; given
             once, repeated at will
              | name "@bootstrap:" host ":" port         A@bootstrap:localhost:9092, a cluster that
             runs already; several addresses in double quotes, with commas:
                A@"bootstrap:one:9092,two:9092"
             with its client properties in braces, if it has TLS or a login (a file, or env:NAME):
                A@bootstrap:localhost:9093{client.properties}
    name     := a letter, then letters and digits, in parts that single hyphens or underscores join:
             us-east, eu_west
    kafka    := a release (3.9.2), a folder (./dist) or an image (apache/kafka); in double quotes
             when it holds a space, a colon,
                a comma, a semicolon, a brace, an arrow or a quote (written twice):
                A@"apache/kafka:4.3.1"
    security := tls, mtls, plain and scram, joined by + (harness.model.security)
    named    := one of topologies.named, with the kafka, brokers and security of all its clusters:
             pair, chain:3, ring@3.9.2

Every malformed text raises InputError with its own sentence: where the error is, what is wrong, and
how to fix it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, NoReturn, TypeVar

from linkflap.harness.model.errors import InputError
from linkflap.harness.model.security import WORDS, canonical
from linkflap.harness.model.texts import counted, nearest
from linkflap.harness.model.topology import DEFAULT_KAFKA, ClusterSpec, LinkSpec, Topology
from linkflap.topologies.named import (
    TOPOLOGIES,
    check,
    check_bootstrap,
    check_brokers,
    check_kafka,
    check_name,
)

_Value = TypeVar("_Value", int, str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mention:
    """A cluster as it stands at one place of the text; what is not given there is None."""

    at: int
    name: str
    brokers: int | None
    kafka: str | None
    security: str | None


class Text:
    """A cursor over the text; `fail` names the place."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def skip_blanks(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.text, self.at)
        if found:
            self.at = found.end()
        return found

    def fail(self, sentence: str, at: int | None = None) -> NoReturn:
        raise InputError(
            f"topology {self.text!r}, character {(self.at if at is None else at) + 1}: {sentence}"
        )


def clusters_of(cursor: Text, mentions: list[Mention]) -> Iterator[ClusterSpec]:
    """One ClusterSpec per name, in the order of first mention."""
    for name in dict.fromkeys(m.name for m in mentions):
        of_it = [m for m in mentions if m.name == name]
        kafka = _agreed(cursor, of_it, "Kafka", [m.kafka for m in of_it], usual=DEFAULT_KAFKA)
        attached = kafka.startswith(_ATTACHED)
        entered = _agreed(cursor, of_it, "security", [m.security for m in of_it], usual="")
        yield ClusterSpec(
            name=name,
            brokers=_agreed(cursor, of_it, "brokers", [m.brokers for m in of_it], usual=1),
            kafka=DEFAULT_KAFKA if attached else kafka,
            bootstrap=kafka.removeprefix(_ATTACHED) if attached else "",
            security="" if attached else entered,
            properties=entered if attached else "",
        )


def _agreed(
    cursor: Text, of_it: list[Mention], what: str, given: list[_Value | None], *, usual: _Value
) -> _Value:
    """One value of a cluster from all its mentions, which must agree."""
    distinct = list(dict.fromkeys(value for value in given if value is not None))
    if len(distinct) > 1:
        values = " and ".join(sorted(map(str, distinct)))
        cursor.fail(
            f"cluster {of_it[-1].name} is given twice with different {what} ({values}); say it "
            "once",
            of_it[-1].at,
        )
    return distinct[0] if distinct else usual


def refuse_duplicates(cursor: Text, links: list[tuple[int, LinkSpec]]) -> None:
    seen: set[LinkSpec] = set()
    for at, link in links:
        if link in seen:
            cursor.fail(
                f"the link {link.name} is there twice; leave one out (A<->B already holds both "
                "directions)",
                at,
            )
        seen.add(link)


_NAME: Final = re.compile(r"[^\s@:,;<>\-=→←↔⇒\"{}]+(?:-[^\s@:,;<>\-=→←↔⇒\"{}]+)*")
_WORD: Final = re.compile(r"[a-z][a-z_]*(?:-[a-z_]+)*")
_ATTACHED: Final = "bootstrap:"
"""The prefix of the addresses of a cluster that runs already; other clusters have their Kafka
there."""
_ADDRESS: Final = re.compile(rf"{_ATTACHED}(?:(?!<?->)[^\s,;\"{{}}])*")
_BARE: Final = re.compile(r"(?:(?!<?->)[^\s:,;\"{}])+")
_QUOTED: Final = re.compile(r'"((?:[^"]|"")*)"')
_BROKERS: Final = re.compile(r"(?:(?!<?->)[^\s,;{}])*")
_SECURITY: Final = re.compile(r"\{([^{}]*)\}")
_ARROW: Final = re.compile(r"[-=~<>→←↔⇒]+")
_LINK: Final = re.compile(r"->|<-|[→←↔⇒]")
_LIKE_LINKS: Final = re.compile(r"[=~<>→←↔⇒,;]|--|-\s|\s-|-$")
"""Text between clusters that is meant as links, rightly or wrongly, and that no name of a topology
has."""


def parse(text: str) -> Topology:
    """Reads the notation."""
    if not text.strip():
        raise InputError("the topology is empty; write links like A->B, or one cluster: A")
    cursor = Text(text)
    cursor.skip_blanks()
    word = _WORD.match(text, cursor.at)
    if word and not _links_in(text, word.group().replace("-", "_")):
        return _named(cursor, word.group())
    mentions: list[Mention] = []
    links: list[tuple[int, LinkSpec]] = []
    while True:
        _path(cursor, mentions, links)
        cursor.skip_blanks()
        if not cursor.peek():
            break
        cursor.at += 1  # a comma or a semicolon: _path stops at nothing else
    refuse_duplicates(cursor, links)
    topology = Topology(
        clusters=tuple(clusters_of(cursor, mentions)), links=tuple(link for _, link in links)
    )
    try:
        check(topology)
    except InputError as error:
        raise InputError(f"topology {text!r}: {error}") from None
    return topology


def _links_in(text: str, word: str) -> bool:
    """Whether a text that begins with a word means links, and not a topology of that name."""
    return bool((_LINK if word in TOPOLOGIES else _LIKE_LINKS).search(_QUOTED.sub("", text)))


def _named(cursor: Text, word: str) -> Topology:
    name, at = word.replace("-", "_"), cursor.at
    if name not in TOPOLOGIES:
        known = ", ".join(sorted(TOPOLOGIES))
        cursor.fail(
            f"there is no topology named {word!r}{nearest(name, TOPOLOGIES)}; write links like "
            f"A->B, one of {known}, or one cluster whose name begins with a capital letter"
        )
    cursor.at += len(word)
    kafka, brokers, security = (
        _version(cursor, word),
        _brokers(cursor, word),
        _security(cursor, word),
    )
    cursor.skip_blanks()
    if cursor.peek():
        cursor.fail(
            f"{cursor.text[cursor.at :]!r} after {cursor.text[at : cursor.at].strip()} has no "
            "meaning; leave it out"
        )
    if kafka and kafka.startswith(_ATTACHED):
        cursor.fail(
            f"one address cannot be that of all clusters of {word}; write the clusters and their "
            "addresses, like A@bootstrap:one:9092->B@bootstrap:two:9092",
            at,
        )
    made = TOPOLOGIES[name](brokers=brokers or 1, kafka=kafka or DEFAULT_KAFKA)
    return replace(
        made, clusters=tuple(replace(cluster, security=security or "") for cluster in made.clusters)
    )


def _path(cursor: Text, mentions: list[Mention], links: list[tuple[int, LinkSpec]]) -> None:
    """One path, up to a comma, a semicolon or the end."""
    cursor.skip_blanks()
    start = cursor.at
    here = _cluster(cursor, mentions, "path")
    linked = False
    while True:
        cursor.skip_blanks()
        if cursor.peek() in ("", ",", ";"):
            break
        at = cursor.at
        arrow = _arrow(cursor, here.name)
        there = _cluster(cursor, mentions, f"arrow {arrow} after {here.name}")
        if there.name == here.name:
            cursor.fail(
                f"the link {here.name}->{here.name} leads from a cluster to itself; name two "
                "clusters",
                at,
            )
        links.append((at, LinkSpec(source=here.name, destination=there.name)))
        if arrow == "<->":
            links.append((at, LinkSpec(source=there.name, destination=here.name)))
        here, linked = there, True
    alone = not cursor.peek() and len(mentions) == 1
    if not linked and not alone:
        cursor.fail(
            f"{here.name} stands alone beside other clusters; join it to one of them, or leave it "
            "out",
            start,
        )


def _arrow(cursor: Text, after: str) -> str:
    at = cursor.at
    found = cursor.take(_ARROW)
    if not found:
        junk = cursor.text[at:].split()[0]
        cursor.fail(
            f"{junk!r} after {after} is neither an arrow nor a comma; write -> or <-> between "
            "clusters",
            at,
        )
    written = found.group()
    if written in ("->", "<->"):
        return written
    if re.fullmatch(r"<[-=~]*|←", written):
        source = _NAME.match(cursor.text, cursor.at)
        cursor.fail(
            f"the arrow {written!r} points backwards; write "
            f"{source.group() if source else 'X'}->{after}",
            at,
        )
    if "<" in written or "↔" in written:
        cursor.fail(f"{written!r} is not an arrow; for links in both directions write <->", at)
    cursor.fail(f"{written!r} is not an arrow; write -> (or <-> for links in both directions)", at)


def _cluster(cursor: Text, mentions: list[Mention], after: str) -> Mention:
    cursor.skip_blanks()
    at = cursor.at
    found = cursor.take(_NAME)
    if not found:
        _no_cluster(cursor, after)
    name = found.group()
    try:
        check_name(name)
    except InputError as error:
        cursor.fail(str(error), at)
    kafka, brokers = _version(cursor, name), _brokers(cursor, name)
    attached = kafka is not None and kafka.startswith(_ATTACHED)
    security = _security(cursor, name, attached=attached)
    mention = Mention(at=at, name=name, kafka=kafka, brokers=brokers, security=security)
    mentions.append(mention)
    return mention


def _no_cluster(cursor: Text, after: str) -> NoReturn:
    if cursor.peek() in (",", ";", "") and after == "path":
        cursor.fail(
            "a path is missing here; leave the comma or semicolon out, or write a path like A->B"
        )
    if after == "path":
        cursor.fail(
            f"a cluster is missing before {cursor.text[cursor.at :].split()[0]!r}; begin with its "
            "name, like A->B"
        )
    if cursor.peek() in (",", ";", ""):
        cursor.fail(f"a cluster is missing at the end of the {after}; name one")
    cursor.fail(
        f"{cursor.peek()!r} stands where the {after} needs the name of a cluster; write one arrow, "
        "then a name"
    )


def _version(cursor: Text, name: str) -> str | None:
    if cursor.peek() != "@":
        return None
    cursor.at += 1
    at = cursor.at
    if cursor.peek() == '"':
        quoted = cursor.take(_QUOTED)
        if not quoted:
            cursor.fail(f"the Kafka version of {name} has no closing double quote; add one", at)
        kafka = quoted.group(1).replace('""', '"')
    else:
        bare = cursor.take(_ADDRESS) or cursor.take(_BARE)
        kafka = bare.group() if bare else ""
    try:
        if kafka.startswith(_ATTACHED):
            check_bootstrap(name, kafka.removeprefix(_ATTACHED))
        else:
            check_kafka(name, kafka)
    except InputError as error:
        cursor.fail(str(error), at)
    return kafka


def _brokers(cursor: Text, name: str) -> int | None:
    if cursor.peek() != ":":
        return None
    cursor.at += 1
    at = cursor.at
    found = cursor.take(_BROKERS)
    written = found.group() if found else ""
    if not re.fullmatch(r"[-+]?[0-9]{1,9}", written):
        cursor.fail(
            f"the brokers of {name} are {written!r}, which is no number; write for example "
            f"{name}:3, "
            f'and a path or image that holds a colon in double quotes: {name}@"apache/kafka:4.3.1"',
            at,
        )
    try:
        check_brokers(name, int(written))
    except InputError as error:
        cursor.fail(str(error), at)
    return int(written)


def _security(cursor: Text, name: str, *, attached: bool = False) -> str | None:
    """The content of the braces behind a cluster; where the cluster is `attached`, its client
    properties."""
    if cursor.peek() != "{":
        return None
    at = cursor.at
    found = cursor.take(_SECURITY)
    if not found:
        cursor.fail(
            f"the security of {name} has no closing brace; write for example {name}{{tls}}", at
        )
    if attached and (source := found.group(1).strip()):
        if set(source.split("+")) <= WORDS.keys():
            cursor.fail(
                f"cluster {name} runs already, and its client properties say how it is secured; "
                "name their file in the braces, or env:NAME",
                at,
            )
        return source
    if not found.group(1).strip():
        cursor.fail(
            f"the security of {name} is empty; write for example {name}{{tls}}, or leave the "
            "braces out",
            at,
        )
    try:
        return canonical("".join(found.group(1).split()))
    except InputError as error:
        cursor.fail(f"cluster {name}: {error}", at)


_NEEDS_QUOTES: Final = re.compile(r'[\s:,;"{}]|->')


def arrows(topology: Topology) -> str:
    """Writes the notation: `parse(arrows(t)) == t` for every t that parse can return.

    A topology built by hand whose clusters are not in the order in which its links name them comes
    back in that order.
    """
    if not topology.links:
        return ", ".join(_write(cluster, set()) for cluster in topology.clusters)
    written: set[str] = set()
    pieces: list[str] = []
    links, end, index = topology.links, "", 0
    while index < len(links):
        link = links[index]
        back = index + 1 < len(links) and links[index + 1] == LinkSpec(
            source=link.destination, destination=link.source
        )
        if link.source != end:
            pieces.append(", " if pieces else "")
            pieces.append(_write(topology.cluster(link.source), written))
        pieces.append("<->" if back else "->")
        pieces.append(_write(topology.cluster(link.destination), written))
        end, index = link.destination, index + 1 + back
    return "".join(pieces)


def _write(cluster: ClusterSpec, written: set[str]) -> str:
    if cluster.name in written:
        return cluster.name
    written.add(cluster.name)
    kafka = f"{_ATTACHED}{cluster.bootstrap}" if cluster.bootstrap else cluster.kafka
    unsafe = _NEEDS_QUOTES.search(kafka) and not _ADDRESS.fullmatch(kafka)
    if unsafe or kafka.endswith(("-", "<")):
        kafka = '"' + kafka.replace('"', '""') + '"'
    version = f"@{kafka}" if kafka != DEFAULT_KAFKA else ""
    brokers = f":{cluster.brokers}" if cluster.brokers != 1 else ""
    entered = cluster.properties or cluster.security
    return cluster.name + version + brokers + (f"{{{entered}}}" if entered else "")


def rows(topology: Topology) -> str:
    """For people: each cluster on a line, with its brokers, its Kafka, and where its links lead."""
    clusters = {cluster.name: "  ".join(_label(cluster)) for cluster in topology.clusters}
    width = max(map(len, clusters.values()), default=0)
    lines = []
    for name, cluster in clusters.items():
        to = ", ".join(link.destination for link in topology.links if link.source == name)
        lines.append(f"{cluster:<{width}}  -> {to}" if to else cluster)
    return "\n".join(lines)


def _label(cluster: ClusterSpec) -> tuple[str, str, str]:
    """Name, brokers, Kafka; of a cluster that runs already, its addresses."""
    if cluster.bootstrap:
        entered = f", entered with {cluster.properties}" if cluster.properties else ""
        entered += f", through the Toxiproxy at {cluster.toxiproxy}" if cluster.toxiproxy else ""
        return cluster.name, "runs already", f"at {cluster.bootstrap}{entered}"
    kafka = cluster.kafka if len(cluster.kafka) <= 24 else "…" + cluster.kafka[-23:]
    secured = f", {cluster.security}" if cluster.security else ""
    needs = f", needs {', '.join(cluster.services)}" if cluster.services else ""
    return (
        cluster.name,
        f"{counted(cluster.brokers, 'broker')}{secured}{needs}",
        f"Kafka {kafka}" if kafka[:1].isdigit() else kafka,
    )
