"""Moments that a timeline marks with a line: failovers, promotions, deaths, elections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from linkflap.harness.model.events import (
    BrokerDied,
    ClientCrash,
    ClientDied,
    ClientRestarted,
    ClientsMoved,
    ClientStalled,
    Event,
    Failover,
    HostStall,
    Interrupted,
    MirrorCrashed,
    MirrorStarted,
    ProducerReplaced,
    Promotion,
    ProxyRebuilt,
    TopicGivenUp,
    Truncation,
)
from linkflap.harness.report.operations import NANO


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A moment worth a line. `kind` is that of its event, or `election`."""

    at: float
    label: str
    kind: str = ""


def _label(event: Event) -> str:
    """What is shown of an event on the axis of time; nothing of most kinds."""
    match event:
        case BrokerDied():
            return f"broker {event.broker} died"
        case MirrorStarted():
            return f"mirror {event.link} started"
        case MirrorCrashed():
            return f"mirror {event.link} crashed ({event.by})"
        case Truncation():
            return f"{event.cluster} truncated {event.topic}-{event.partition} to {event.offset}"
        case ProxyRebuilt():
            return f"proxies of {event.link} rebuilt"
        case HostStall():
            return f"the host stalled for {event.seconds} s"
        case TopicGivenUp():
            return f"{event.link} gave up {event.topic}"
        case Interrupted():
            return "interrupted"
    return _label_of_clients(event)


def _label_of_clients(event: Event) -> str:
    match event:
        case ClientDied():
            return f"{event.process} died ({event.by})"
        case ClientRestarted():
            return f"{event.process} started again"
        case ClientCrash():
            return f"{event.client} crashed"
        case ClientStalled():
            return f"{event.client} stalled"
        case ProducerReplaced():
            return f"{event.client} replaced"
        case ClientsMoved():
            return f"clients of {event.cluster} moved to {event.to}"
    return ""


def marks(
    events: Sequence[Event], elections: Sequence[tuple[int, str]], began: int, ended: int
) -> list[Mark]:
    """Failovers, and the first promotion of each link that has none (one line per link, not one per
    partition); and the rest."""
    marks: list[Mark] = []
    seen: set[str] = set()
    for event in sorted(events, key=lambda event: not isinstance(event, Failover)):
        at = (event.time - began) / NANO
        match event:
            case Failover():
                marks.append(
                    Mark(at=at, label=f"failover {event.link} ({event.mode})", kind=event.kind)
                )
            case Promotion() if event.link not in seen:
                seen.add(event.link)
                marks.append(Mark(at=at, label=f"{event.cluster} promoted", kind=event.kind))
            case _ if (label := _label(event)) and began <= event.time <= ended:
                marks.append(Mark(at=at, label=label, kind=event.kind))
    # For its readers, every partition that a broker led is one election.
    last = -NANO
    for time, label in sorted(elections):
        if time - last > NANO and began <= time <= ended:
            marks.append(Mark(at=(time - began) / NANO, label=label, kind="election"))
        last = time
    return marks
