"""certificate-expired: a path into a cluster presents an expired certificate to its clients.

Breaks    trust: the cluster's certificate has expired because nobody renewed it. Needs a cluster
          with TLS. Open connections are reset, so that every client must connect again.
Bite      a new connection is refused by the client, with the words "certificate has expired".
Heal      the valid certificate is back, and a round trip is as quick as before.
"""

from __future__ import annotations

from linkflap.chaos.faults.certificate_shown import CertificateShown


class CertificateExpired(CertificateShown):
    """Makes the listener of a link present an expired certificate."""

    shown = "expired"
    refused_for = "certificate has expired"
