"""certificate-untrusted: a path into a cluster shows a certificate of a strange authority to
whoever comes in by it.

Breaks    trust: the certificate by which a cluster is known is another authority's, as after a
          careless renewal. Needs a cluster with TLS. Connections that there are get reset, so that
          everybody has to come in anew.
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
