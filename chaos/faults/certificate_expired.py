"""certificate-expired: a path into a cluster shows an expired certificate to whoever comes in by
it.

Breaks    trust: the certificate by which a cluster is known has run out, as one does that nobody
          renewed. Needs a cluster with TLS. Connections that there are get reset, so that everybody
          has to come in anew.
Bite      a new connection is refused by the client, with the words "certificate has expired".
Heal      the valid certificate is back, and a round trip is as quick as before.
"""

from __future__ import annotations

from linkflap.chaos.faults.certificate_shown import CertificateShown


class CertificateExpired(CertificateShown):
    """Has the listener of a link show a certificate that has expired."""

    shown = "expired"
    refused_for = "certificate has expired"
