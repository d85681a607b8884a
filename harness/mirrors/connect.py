"""MirrorMaker 2 on a Connect cluster that others run: connectors with names of this run only, on
the link's proxies; driven by Connect's REST API (KIP-875) alone.

The Connect cluster must be on the link's destination, because its workers write there. When a
connector is asked to stop, its tasks may write until Connect gives them up
(task.shutdown.graceful.timeout.ms, 5 s by default), and with several workers no answer says when
they have ended. So `stop` waits until the destination has been unchanged for longer than that. The
connector itself writes no records; with a dead source it ends only after admin.timeout.ms.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from linkflap.harness.machine import ledger
from linkflap.harness.machine.rest_leftovers import NoServer, RestObject, RestServer, said, unique
from linkflap.harness.mirrors import mm2_config
from linkflap.harness.mirrors.mm2 import SETTLE_SECONDS, MirrorMaker, MirrorProgress
from linkflap.harness.model.errors import FaultError, InputError
from linkflap.harness.model.protocols import Deployment, Mirror, Recorder, Service
from linkflap.harness.model.scenario import MirrorSpec
from linkflap.harness.model.topology import LinkSpec, hyphen_free, topic_pattern
from linkflap.harness.model.wait import until

_QUIET_SECONDS: Final = 6.0
"""Longer than Connect lets a task run that is to stop."""
_TAKEN_WITHIN: Final = 90.0
"""Seconds: Connect answers 409 as long as it rebalances."""
_SINCE: Final = (3, 6)
"""The first release that deletes the offsets of a connector (KIP-875)."""
_CONFLUENT: Final = re.compile(r"\d+\.\d+\.\d+-(ccs|ce)")


def mirror_maker(
    spec: MirrorSpec, link: LinkSpec, deployment: Deployment, recorder: Recorder
) -> Mirror:
    """MirrorMaker 2 in a worker of its own, or on a Connect cluster that others run."""
    kind = SharedMirrorMaker if spec.options.get("connect") else MirrorMaker
    return kind(spec, link, deployment, recorder)


class Connectors:
    """The connectors of one link, as a `harness.model.protocols.Service`: `start` makes them,
    `stop` and `kill` stop them, `close` removes them."""

    log = Path()

    def __init__(
        self, server: RestServer, cluster_id: str, settings: Mapping[str, Mapping[str, str]]
    ) -> None:
        """`settings`: class of a connector -> its settings."""
        self.server, self._settings, self.alive = server, settings, False
        self.made = {
            name: RestObject(
                kind="connector",
                name=unique(
                    f"{hyphen_free(each['source.cluster.alias'])}-"
                    f"{hyphen_free(each['target.cluster.alias'])}.{name}"
                ),
                server=server,
                cluster_id=cluster_id,
            )
            for name, each in settings.items()
        }

    def start(self) -> None:
        """Raises InputError where Connect refuses one, DeadlineExceeded where it does not take
        it."""
        for name, made in self.made.items():
            ledger.add_made(made)
            _repeated(partial(self._taken, name), made, "to be made")
        self.alive = True

    def _taken(self, name: str, made: RestObject, last: list[str]) -> bool:
        answer = self.server.ask(
            "PUT", f"{made.path}/config", {**self._settings[name], "name": made.name}
        )
        if answer.ok:
            return True
        last.append(said(answer))
        if answer.status_code == 409 or answer.status_code >= 500:
            return False
        raise InputError(f"{made} was refused: {last[-1]}")

    def stop(self) -> None:
        """Returns when Connect says that no task is left. Raises NoServer, DeadlineExceeded."""
        if not self.alive:
            return
        for made in self.made.values():
            _repeated(self._asked_to_stop, made, "to be asked to stop")
        for made in self.made.values():
            _repeated(self._stopped, made, "to stop")
        self.alive = False

    def _asked_to_stop(self, made: RestObject, last: list[str]) -> bool:
        answer = self.server.ask("PUT", f"{made.path}/stop")
        last.append(said(answer))
        return answer.ok or answer.status_code == 404

    def _stopped(self, made: RestObject, last: list[str]) -> bool:
        answer = self.server.ask("GET", f"{made.path}/status")
        last.append(said(answer))
        if not answer.ok:
            return answer.status_code == 404
        return not answer.json()["tasks"]

    kill = stop

    def pause(self) -> None:
        raise FaultError("the workers of a Connect cluster that others run are not paused")

    resume = pause

    def close(self) -> None:
        """Removes them; what could not be removed stays in the ledger, for `linkflap clean`."""
        self.alive = False
        ledger.remove_made(self.made.values())


def _repeated(step: Callable[[RestObject, list[str]], bool], made: RestObject, what: str) -> None:
    """Repeats a step until it is done. It notes what Connect says against it. Raises
    DeadlineExceeded."""
    last: list[str] = []
    until(
        partial(step, made, last),
        within=_TAKEN_WITHIN,
        every=0.2,
        what=f"{made} {what}",
        state=lambda: last[-1:],
    )


class RestProgress(MirrorProgress):
    """The state of the connectors of one link, from Connect's REST API."""

    def __init__(self, link: str, connectors: Connectors) -> None:
        super().__init__(link)
        self._server, self._connectors = connectors.server, connectors

    def refresh(self) -> bool:
        """False while Connect does not answer. A connector that somebody has deleted ends the
        mirror."""
        try:
            for name, made in self._connectors.made.items():
                answer = self._server.ask("GET", f"{made.path}/status")
                if answer.status_code == 404 and f"connector {name}" in self.states:
                    self._connectors.alive = False
                if not answer.ok:
                    return False
                self._take(name, answer.json())
            source = self._connectors.made[mm2_config.SOURCE_CONNECTOR]
            answer = self._server.ask("GET", f"{source.path}/offsets")
            for row in answer.json()["offsets"] if answer.ok else ():
                self.take_offset(row["partition"], row["offset"])
        except (NoServer, ValueError, KeyError):  # what answers is no worker
            return False
        return answer.ok

    def _take(self, connector: str, found: Mapping[str, Any]) -> None:
        self.take_state(connector, -1, found["connector"])
        for task in found["tasks"]:
            self.take_state(connector, int(task["id"]), task)


class SharedMirrorMaker(MirrorMaker):
    """MirrorMaker 2 on a Connect cluster that others run. Raises InputError for one that cannot
    play it."""

    _connectors: Connectors

    def _prepare(self, deployment: Deployment) -> Service:
        server = mm2_config.connect_server(self._options.connect)
        assert server is not None
        names = mm2_config.connectors(self._options)
        cluster_id = self._destination.id
        check_server(server, names, self.link, cluster_id)
        values = mm2_config.properties(
            self._options,
            self.link,
            source=deployment.links[self.link.name].bootstrap,
            destination=self._destination.inner_bootstrap,
            topics=topic_pattern(self._homes),
            replicas=min(3, len(self._destination.brokers)),
            port=0,
            own=self._settings,
        )
        settings = {name: mm2_config.connector(name, values, self.link) for name in names}
        self._connectors = Connectors(server, cluster_id, settings)
        deployment.at_close(self._connectors.close)
        return self._connectors

    def _watched(self) -> MirrorProgress:
        return RestProgress(self.link.name, self._connectors)

    def _see(self) -> str:
        return f"more is in the logs of the workers of {self._connectors.server.url}"

    def _words(self) -> str:
        return (
            f"its workers have to reach the link's proxies, on loopback of this machine; "
            f"{self._see()}"
        )

    def _settle(self) -> None:
        """Does nothing: open transactions end by their timeout. The connectors' transactional ids
        begin with Connect's group.id, which Connect does not report."""
        closed = self._options.delivery == "exactly-once"
        self._ends.await_unchanged(SETTLE_SECONDS, closed=closed, quiet=_QUIET_SECONDS)


def check_server(
    server: RestServer, connectors: tuple[str, ...], link: LinkSpec, cluster_id: str
) -> None:
    """Raises InputError for a Connect cluster that cannot run these connectors for this link."""
    where = f"the Connect cluster at {server.url}"
    try:
        root, plugins = server.ask("GET", "/"), server.ask("GET", "/connector-plugins")
    except NoServer as error:
        raise InputError(
            f"the Connect cluster at {error}; check that its workers run, and that this is the "
            "address of their REST API"
        ) from None
    for answer in (root, plugins):
        if answer.status_code in (401, 403):
            raise InputError(
                f"{where} refuses access ({said(answer)}); name a file with username and "
                f"password behind its address: {server.url}{{connect.properties}}"
            )
    try:
        on, version = root.json()["kafka_cluster_id"], str(root.json()["version"])
        known = {each["class"].rpartition(".")[2] for each in plugins.json()}
    except (ValueError, KeyError, TypeError):
        raise InputError(
            f"{server.url} does not answer as the REST API of a Connect cluster does; give the "
            "address of a worker, without a path"
        ) from None
    if on != cluster_id:
        raise InputError(
            f"{where} is on the Kafka cluster with cluster.id {on}, and writes there; mirror mm2 on"
            f" {link.name} needs one on {link.destination} (cluster.id {cluster_id})"
        )
    if release(version) < _SINCE:
        raise InputError(
            f"{where} runs Kafka {version}, which cannot delete the offsets of a connector; it "
            f"needs {'.'.join(map(str, _SINCE))} or later"
        )
    if lacking := [name for name in connectors if name not in known]:
        raise InputError(
            f"the workers of {where} do not have {', '.join(lacking)}; add the jars connect-mirror "
            "and connect-mirror-client of their release to their class path or plugin.path"
        )


def release(version: str) -> tuple[int, int]:
    """The major and minor number of the Kafka in a version (`4.3.1`; Confluent's `7.6.0-ccs` is
    3.6); large numbers where it has none."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None:
        return (99, 0)
    major, minor = int(found[1]), int(found[2])
    return (major - 4 if _CONFLUENT.match(version) else major, minor)
