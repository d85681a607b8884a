"""Faults of a cluster's listeners: they present a wrong certificate.

Brokers apply a new key store while they run (KIP-226), for new connections only. So open
connections are reset, and their clients must connect again."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import ClassVar

from linkflap.chaos.faults.base import BITES_WITHIN, settings
from linkflap.chaos.faults.links import LinkPath, link_reason
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.faults import Target
from linkflap.harness.model.protocols import Bite, Certificate, World
from linkflap.harness.model.scenario import FaultSpec, Option
from linkflap.harness.model.security import beside, secured
from linkflap.harness.model.topology import Topology
from linkflap.harness.model.wait import until
from linkflap.harness.runtimes import probe

_ANSWERS_WITHIN = 5.0


class CertificateShown:
    """A fault on the certificate of one path into a cluster."""

    restores = True
    defaults: ClassVar[Mapping[str, Option]] = {}
    abouts: ClassVar[Mapping[str, str]] = {}
    shown: ClassVar[Certificate]
    refused_for: ClassVar[str]
    """A part of the error of a client that refuses the certificate (OpenSSL's text)."""

    def __init__(self, spec: FaultSpec, world: World) -> None:
        settings(spec, self.defaults)
        self._path = LinkPath(spec, world)
        self._cluster = world.deployment.clusters[self._path.link.source]

    @classmethod
    def applies_to(cls, target: str, topology: Topology) -> str | None:
        if reason := link_reason(target, topology):
            return reason
        entered = Target.parse(target).entered
        if secured(topology.cluster(entered).security).tls:
            return None
        return (
            f"{target} leads into {entered}, which shows no certificate; secure it: "
            f"{entered}{{tls}}"
        )

    def inject(self) -> None:
        self._path.look()
        self._cluster.show_certificate(self._path.link.name, self.shown)
        with contextlib.suppress(DeadlineExceeded):
            until(
                lambda: self.refused_for in self._refusal(),
                within=BITES_WITHIN,
                what="the other certificate to be shown",
            )
        self._path.cut()
        self._path.restore()

    def _refusal(self) -> str:
        """Why a broker or a client refuses a new connection; empty if all accept it."""
        bootstrap = self._path.link.bootstrap
        return probe.refusal(beside(bootstrap, bootstrap.split(",")[0]), within=_ANSWERS_WITHIN)

    def bite(self) -> Bite:
        return self._path.bite(
            "a new connection over the link", f"refused: {self.refused_for}", self._measure
        )

    def _measure(self) -> tuple[bool, object]:
        refusal = self._refusal()
        return self.refused_for in refusal, refusal or "taken"

    def heal(self) -> Sequence[str]:
        self._cluster.show_certificate(self._path.link.name, "valid")
        return [
            f"the valid certificate is shown on {self._path.link.name} again",
            *self._path.heal(),
        ]


class CertificateExpired(CertificateShown):
    """Makes the listener of a link present an expired certificate.

    Breaks    trust: the cluster's certificate has expired because nobody renewed it. Needs a
              cluster with TLS. Open connections are reset, so that every client must connect again.
    Bite      a new connection is refused by the client, with the words "certificate has expired".
    Heal      the valid certificate is back, and a round trip is as quick as before.
    """

    shown = "expired"
    refused_for = "certificate has expired"


class CertificateUntrusted(CertificateShown):
    """Gives the listener of a link a certificate of an untrusted authority.

    Breaks    trust: another authority issued the cluster's certificate, as after a careless
              renewal. Needs a cluster with TLS. Open connections are reset, so that every client
              must connect again.
    Bite      a new connection is refused by the client, with the words "unable to get local issuer
              certificate".
    Heal      the valid certificate is back, and a round trip is as quick as before.
    """

    shown = "untrusted"
    refused_for = "unable to get local issuer certificate"
