"""certificate-untrusted: a path into a cluster presents a certificate of an unknown authority to
its clients.

Breaks    trust: another authority issued the cluster's certificate, as after a careless renewal.
          Needs a cluster with TLS. Open connections are reset, so that every client must connect
          again.
Bite      a new connection is refused by the client, with the words "unable to get local issuer
          certificate".
Heal      the valid certificate is back, and a round trip is as quick as before.
"""

from __future__ import annotations

from linkflap.chaos.faults.certificate_shown import CertificateShown


class CertificateUntrusted(CertificateShown):
    """Gives the listener of a link a certificate of an untrusted authority."""

    shown = "untrusted"
    refused_for = "unable to get local issuer certificate"
