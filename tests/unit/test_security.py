"""How clusters are secured and entered: notation, client settings, addresses, certificates,
bootstrap records."""

from __future__ import annotations

import asyncio
import copy
import re
import socket
import ssl
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from linkflap.harness.log import reference
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.security import (
    OPEN,
    Address,
    Security,
    beside,
    canonical,
    entered_by,
    secured,
    security_of,
)
from linkflap.harness.model.topology import Topology
from linkflap.harness.runtimes import probe
from linkflap.harness.runtimes.kraft.secrets import (
    PREFIXED,
    TOPIC,
    Acl,
    Authority,
    ClusterSecrets,
    append_to_checkpoint,
    scram_user,
)
from linkflap.harness.wire.messages import Pieces
from linkflap.harness.wire.stream import Stream
from linkflap.topologies.notation import arrows, parse

# What StorageTool of Kafka 3.7.0 wrote: snapshot header, one record of metadata.version, snapshot
# footer.
CHECKPOINT = bytes.fromhex(
    "00000000000000000000004700000000021f35c57e002000000000000001a203006483000001a203006483ffffffffffffffffffffffffffff000000"
    "012a00000008000000031600000000000000000000000000000000000000010000004f000000000215f27e1e000000000000000001a20300649e0000"
    "01a20300649effffffffffffffffffffffffffff000000013a000000012e010c00116d657461646174612e76657273696f6e00130000000000000000"
    "00020000003f0000000002bf13637f002000000000000001a20300649f000001a20300649fffffffffffffffffffffffffffff000000011a00000008"
    "000000040600000000"
)


@pytest.mark.parametrize(
    ("text", "protocol", "names_clients"),
    [
        ("", "PLAINTEXT", False),
        ("tls", "SSL", False),
        ("mtls", "SSL", True),
        ("plain", "SASL_PLAINTEXT", True),
        ("scram", "SASL_PLAINTEXT", True),
        ("tls+plain", "SASL_SSL", True),
        ("tls+scram", "SASL_SSL", True),
        ("mtls+scram", "SASL_SSL", True),
    ],
)
def test_the_notation_sets_the_protocols_of_listeners(
    text: str, protocol: str, names_clients: bool
) -> None:
    found = secured(text)
    assert (found.protocol, found.names_clients) == (protocol, names_clients)
    assert canonical("+".join(reversed(text.split("+")))) == text


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "A{tsl}->B",
            (
                "cluster A: 'tsl' is no way to secure a cluster (did you mean 'tls'?); write tls, "
                "mtls, plain or scram"
            ),
        ),
        ("A{}->B", "the security of A is empty; write for example A{tls}, or leave the braces out"),
        ("A{ }->B", "the security of A is empty"),
        (
            "A{plain+scram}->B",
            "two ways to do one thing; clients log in by one mechanism: leave plain or scram out",
        ),
        ("A{tls+mtls}->B", "mtls is tls with certificates of clients: leave tls out"),
        ("A{tls+tls}->B", "'tls+tls' repeats a word; write tls"),
        ("A{tls->B", "the security of A has no closing brace; write for example A{tls}"),
        (
            "A{tls}->B, A{scram}->C",
            "cluster A is given twice with different security (scram and tls); say it once",
        ),
        ("A{tls}:3->B", "':3->B' after A is neither an arrow nor a comma"),
    ],
)
def test_wrong_annotations_are_refused_in_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)) as refused:
        parse(text)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    ["A{tls}->B", "A:3{tls+scram}->B{mtls}", "A@4.2.0:3{plain}->B->C{tls}", "A{scram}<->B{scram}"],
)
def test_written_text_is_read_back(text: str) -> None:
    assert arrows(parse(text)) == text
    assert [cluster.security for cluster in parse("pair{scram+tls}").clusters] == ["tls+scram"] * 2


def test_one_value_gives_the_settings_of_every_client() -> None:
    entry = Security(
        protocol="SASL_SSL",
        authority="/ca",
        identity="/me",
        mechanism="SCRAM-SHA-512",
        username="client",
        password="hidden",
    )
    assert entry.librdkafka() == {
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": "/ca",
        "ssl.certificate.location": "/me",
        "ssl.key.location": "/me",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "client",
        "sasl.password": "hidden",
    }
    java = entry.java()
    assert java["ssl.truststore.location"] == "/ca"
    assert java["ssl.keystore.type"] == "PEM"
    login = 'ScramLoginModule required username="client" password="hidden";'
    assert java["sasl.jaas.config"] == f"org.apache.kafka.common.security.scram.{login}"
    assert "hidden" not in repr(entry)
    assert OPEN.librdkafka() == OPEN.java() == {}


def test_an_address_is_a_text_that_knows_how_it_is_entered() -> None:
    reader, client = (
        Security(protocol="SSL", username="reader"),
        Security(protocol="SSL", username="client"),
    )
    address = Address("h:1,h:2", client, {"reader": reader, "client": client})
    assert address == "h:1,h:2"
    assert security_of(entered_by(address, "reader")) == reader
    assert security_of(beside(address, "h:3")) == client
    assert security_of(copy.deepcopy(address)) == client
    assert (
        security_of("h:1")
        == security_of(entered_by("h:1", "reader"))
        == security_of(beside("h:1", "h:2"))
        == OPEN
    )


def test_first_records_stand_between_those_of_the_release_and_the_footer(tmp_path: Path) -> None:
    path = tmp_path / "bootstrap.checkpoint"
    path.write_bytes(CHECKPOINT)
    acl = Acl(
        user="reader",
        resource=TOPIC,
        name="A.",
        operation=3,
        pattern=PREFIXED,
    )
    append_to_checkpoint(tmp_path, [scram_user("client", "secret"), acl.record])
    batches = list(reference.batches(path.read_bytes()))
    assert [batch.base_offset for batch in batches] == [0, 1, 2, 4]
    assert all(batch.crc_ok for batch in batches)
    user, right = (record.value or b"" for record in reference.records(batches[2]))
    assert user[:4] == bytes([1, 11, 0, len("client") + 1])
    assert user[4:11] == b"client\x02"
    assert b"secret" not in user
    assert right[:3] == bytes([1, 18, 0])
    assert right[19:] == bytes([2, 3]) + b"A.\x04" + bytes([12]) + b"User:reader" + bytes(
        [2]
    ) + b"*" + bytes([3, 3, 0])


def contexts(folder: Path, *, expired: bool = False) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """TLS contexts of a server and a client, with one certificate authority."""
    authority = Authority(folder, "authority")
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.file))
    server.load_cert_chain(
        authority.issue("node.pem", "broker", ["127.0.0.1", "localhost"], expired=expired)
    )
    return server, ssl.create_default_context(cafile=str(authority.file))


def shaken(server: ssl.SSLContext, client: ssl.SSLContext, host: str, say: Pieces) -> bytes:
    """A TLS handshake over two streams, then one frame; returns what arrived."""

    async def both() -> bytes:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            one = socket.create_connection(listening.getsockname())
            other, _ = listening.accept()
        here, there = Stream(one, tls=client, host=host), Stream(other, tls=server)
        try:
            await asyncio.gather(here.shake_hands(), there.shake_hands())
            _, arrived = await asyncio.gather(here.write(say), there.read())
            return bytes(arrived)
        finally:
            here.close()
            there.close()

    return asyncio.run(both())


def test_frames_pass_tls_whatever_their_size(tmp_path: Path) -> None:
    server, client = contexts(tmp_path)
    body = bytes(range(256)) * 4096
    frame = Pieces((len(body).to_bytes(4, "big"), b"", body[:10], body[10:]))
    assert shaken(server, client, "127.0.0.1", frame) == body


@pytest.mark.parametrize(("expired", "host"), [(True, "127.0.0.1"), (False, "example.org")])
def test_a_certificate_that_is_not_valid_is_refused(
    tmp_path: Path, expired: bool, host: str
) -> None:
    server, client = contexts(tmp_path, expired=expired)
    with pytest.raises(ssl.SSLCertVerificationError):
        shaken(server, client, host, Pieces((b"\0\0\0\0",)))


def secrets(folder: Path, security: str) -> ClusterSecrets:
    topology: Topology = parse(f"A{{{security}}}->B")
    return ClusterSecrets("A", topology, folder, {1: ("127.0.0.1", "localhost")})


def test_passwords_are_in_files_of_this_user_alone(tmp_path: Path) -> None:
    made = secrets(tmp_path, "tls+plain")
    settings = made.settings(1, ["INTERNAL", "CLIENT", "CONTROLLER"], ["INTERNAL", "CONTROLLER"])
    password = security_of(made.entry("h:1", "client")).password
    assert len(password) >= 32
    assert not any(password in value for value in settings.values())
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in (tmp_path / "A").iterdir())
    assert (
        settings["listener.security.protocol.map"] == "INTERNAL:SSL,CLIENT:SASL_SSL,CONTROLLER:SSL"
    )
    assert settings["listener.name.internal.ssl.client.auth"] == "required"
    assert settings["super.users"] == "User:harness;User:broker"
    assert settings["allow.everyone.if.no.acl.found"] == "false"
    assert security_of(made.entry("h:1", "reader")).password != password


def holds_for(path: str) -> set[str]:
    certificate = x509.load_pem_x509_certificates(Path(path).read_bytes())[0]
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {
        *map(str, names.get_values_for_type(x509.IPAddress)),
        *names.get_values_for_type(x509.DNSName),
    }


def test_a_shadow_at_an_address_of_its_own_gets_a_certificate_for_it(tmp_path: Path) -> None:
    made = secrets(tmp_path, "tls+scram")
    before = security_of(made.inner("h:1"))
    made.serve_at("10.201.0.9")
    made.serve_at("10.201.0.9")
    after = security_of(made.inner("h:1"))
    assert holds_for(before.identity) == {"127.0.0.1", "localhost"}
    assert holds_for(after.identity) == {"127.0.0.1", "localhost", "10.201.0.9"}
    assert (after.authority, after.file) == (before.authority, before.file)
    assert security_of(made.entry("h:1", "broker")).identity == ""
    made.serve_at("127.0.0.1")
    assert security_of(made.inner("h:1")) == after


def test_the_first_bytes_to_a_secured_address_have_no_secrets(
    tmp_path: Path,
) -> None:
    made = secrets(tmp_path, "tls")
    assert probe.first_words("127.0.0.1:1") == probe.API_VERSIONS
    greeting = probe.first_words(made.inner("127.0.0.1:1"))
    assert greeting[:2] == b"\x16\x03"  # a record of TLS's handshake
    certificate = x509.load_pem_x509_certificates(
        Path(security_of(made.inner("h:1")).identity).read_bytes()
    )[0]
    assert certificate.public_bytes(serialization.Encoding.DER) not in greeting


def test_a_cluster_without_client_authentication_needs_no_acls(tmp_path: Path) -> None:
    made = secrets(tmp_path, "tls")
    assert made.records == []
    assert "authorizer.class.name" not in made.settings(1, ["INTERNAL", "CLIENT"], ["INTERNAL"])


def test_the_rights_to_topics_of_any_name_name_no_topic(tmp_path: Path) -> None:
    topology = parse("A{plain}->B")
    found = {}
    for any_names in (False, True):
        folder = tmp_path / str(any_names)
        folder.mkdir()
        made = ClusterSecrets(
            "A", replace(topology, any_names=any_names), folder, {1: ("127.0.0.1",)}
        )
        found[any_names] = any(b"A." in record for record in made.records)
    assert found == {False: True, True: False}


def test_scram_users_and_acls_are_there_from_the_beginning(tmp_path: Path) -> None:
    made = secrets(tmp_path, "scram")
    keys = [record[1] for record in made.records]
    assert keys.count(11) == 6
    assert keys.count(18) == len(keys) - 6
    assert security_of(made.entry("h:1")).authority == ""
    assert security_of(made.inner("h:1")).protocol == "SSL"
