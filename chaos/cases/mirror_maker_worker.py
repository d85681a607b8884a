"""A MirrorMaker 2 worker with a case's own settings, where those of the mirror `mm2` are fixed:
names of copies, both directions."""

from __future__ import annotations

from collections.abc import Mapping

from linkflap.chaos.cases.bench import Bench
from linkflap.harness.mirrors import mm2_config
from linkflap.harness.model.protocols import Service
from linkflap.harness.model.topology import LinkSpec

POLICIES = "org.apache.kafka.connect.mirror"
_FILE = "mm2.properties"


def worker(
    bench: Bench, topics: str, *, both: bool = False, settings: Mapping[str, str] | None = None
) -> Service:
    """A worker that copies `topics` from A to B, or both ways; started, and stopped with the
    run."""
    made: dict[str, str] = {}
    for source, destination in ((("B", "A"),) if both else ()) + (("A", "B"),):
        made |= mm2_config.properties(
            mm2_config.options({"groups": ""}),
            LinkSpec(source=source, destination=destination),
            source=bench.cluster(source).inner_bootstrap,
            destination=bench.cluster(destination).inner_bootstrap,
            topics=topics,
            replicas=1,
            port=0,
        )
    if both:
        made["B->A.enabled"] = "true"
    started = bench.deployment.service(
        bench.name("mm2"),
        main=mm2_config.MAIN,
        kafka=bench.cluster("B").kafka,
        files={_FILE: mm2_config.render(made | dict(settings or {}))},
        arguments=[_FILE] if both else [_FILE, "--clusters", "B"],
    )
    started.start()
    bench.closing(_Stopped(started))
    return started


class _Stopped:
    """Ends a worker as a run closes its clients."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def close(self) -> None:
        self._service.kill()
