"""MirrorMaker 2's options and properties: what is refused, and what each option turns on; regular
expressions that Java refuses."""

from __future__ import annotations

import random
from dataclasses import asdict
from typing import cast

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from linkflap.harness.machine.java import properties_file
from linkflap.harness.mirrors import make_mirror, mm2, mm2_config, resolve
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.option import reason_against
from linkflap.harness.model.protocols import Deployment, Recorder
from linkflap.harness.model.scenario import MirrorSpec, Option
from linkflap.harness.model.security import Address, Security
from linkflap.harness.model.topology import LinkSpec, topic_pattern

LINK = LinkSpec(source="A", destination="B")


def properties(**given: Option) -> dict[str, str]:
    return mm2_config.properties(
        mm2_config.options(given),
        LINK,
        source="a:1",
        destination="b:1",
        topics=topic_pattern(("A",)),
        replicas=3,
        port=4711,
        own=mm2_config.settings(given),
    )


def test_defaults_read_committed_and_deliver_at_least_once() -> None:
    assert mm2_config.options({}) == mm2_config.Mm2Options(
        delivery="at-least-once", isolation="read_committed", groups=".*", tasks=2
    )


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"delivrey": "exactly-once"},
            (
                "no option 'delivrey' (did you mean 'delivery'?); it has delivery, isolation, "
                "groups, tasks"
            ),
        ),
        ({"delivery": "at-most-once"}, "'at-most-once'; it must be at-least-once or exactly-once"),
        ({"isolation": True}, "True; it must be read_committed or read_uncommitted"),
        ({"groups": "a\nb.enabled=true"}, "on one line"),
        ({"groups": 3}, "regular expression"),
        (
            {"groups": "["},
            "'[', which Java rejects as a regular expression: unterminated character set",
        ),
        ({"groups": "app,[a-z"}, "unterminated character set"),
        ({"groups": "app,+"}, "nothing to repeat"),
        ({"groups": "a{1,2}"}, "a '{' that does not begin {n}, {n,} or {n,m}"),
        ({"tasks": 0}, "from 1 to 64"),
        ({"tasks": True}, "from 1 to 64"),
        ({"tasks": 1.5}, "from 1 to 64"),
        ({"offset.lag.maxx": 1}, "is not passed on (did you mean 'offset.lag.max'?)"),
        ({"offset.lag.max": -1}, "is -1; give a whole number from 0 to 1000000"),
        ({"sync.group.offsets.interval.seconds": "1m"}, "is '1m'; give a whole number"),
        ({"transforms.x.type": "y"}, "transforms change records on their way"),
        ({"transforms": "x"}, "mirror mm2 takes no transforms: transforms change records"),
        ({"producer.lingr.ms": 5}, "of a producer (did you mean 'linger.ms'?); write producer.lin"),
        ({"consumer.linger.ms": 5}, "Kafka has no setting 'linger.ms' of a consumer"),
        ({"consumer.fetch.max.wait.ms": "soon"}, "is 'soon'; give a whole number from 0 to 21474"),
        (
            {"producer.compression.type": "fast"},
            "is 'fast'; give one of gzip, lz4, none, snappy, zstd",
        ),
        ({"producer.acks": "1"}, "setting producer.acks of mirror mm2 is not passed on"),
        ({"consumer.isolation.level": "read_uncommitted"}, "is not passed on"),
        ({"consumer.group.id": "x"}, "is not passed on"),
        ({"producer.transaction.timeout.ms": 1}, "is not passed on"),
        ({"producer.interceptor.classes": "x"}, "is not passed on"),
        ({"producer.sasl.jaas.config": "x"}, "is not passed on"),
        ({"producer.compression.type": "${file:/etc/passwd:x}"}, "without $ and backslashes"),
        ({"producer.compression.type": "zstd\ntopics=.*"}, "give a text on one line"),
    ],
)
def test_a_wrong_option_is_named_with_what_is_allowed(given: dict[str, Option], says: str) -> None:
    with pytest.raises(InputError) as refused:
        mm2_config.options(given)
    assert says in str(refused.value)


def test_settings_of_its_own_are_passed_on_and_its_guarantee_follows_them() -> None:
    given: dict[str, Option] = {
        "offset.lag.max": 7,
        "sync.group.offsets.interval.seconds": 60,
        "consumer.max.poll.records": 50,
        "producer.compression.type": "zstd",
    }
    found = properties(**given)
    assert found["offset.lag.max"] == "7"
    assert found["sync.group.offsets.interval.seconds"] == "60"
    assert found["A.consumer.max.poll.records"] == "50"
    assert found["B.producer.compression.type"] == "zstd"
    spec = resolve(MirrorSpec(kind="mm2", options=given))
    assert spec.resolved == {**asdict(mm2_config.options({})), **given}
    assert spec.guarantee.group_offset_records == 7
    assert spec.guarantee.group_offset_seconds == 64
    plain = resolve(MirrorSpec(kind="mm2")).guarantee
    assert (plain.group_offset_records, plain.group_offset_seconds) == (100, 5)


@pytest.mark.parametrize("groups", ["", ".*", "app,other", "[a-z&&[^(]]{2}"])
def test_pattern_that_java_may_accept_is_not_refused(groups: str) -> None:
    assert mm2_config.options({"groups": groups}).groups == groups


def test_a_connector_without_work_is_not_expected() -> None:
    assert mm2_config.connectors(mm2_config.options({})) == (
        "MirrorSourceConnector",
        "MirrorCheckpointConnector",
    )
    assert mm2_config.connectors(mm2_config.options({"groups": ""})) == ("MirrorSourceConnector",)


def test_an_unknown_kind_is_named_with_the_kinds_there_are() -> None:
    with pytest.raises(InputError, match=r"no mirror 'mm1'.*mm2"):
        make_mirror(MirrorSpec(kind="mm1"), LINK, cast(Deployment, None), cast(Recorder, None))


def test_the_source_is_read_through_the_link_and_the_destination_written_directly() -> None:
    found = properties()
    assert (found["A.bootstrap.servers"], found["B.bootstrap.servers"]) == ("a:1", "b:1")
    assert found["A->B.topics"] == r"(A)\..*"
    assert found["B->A.enabled"] == "false"
    assert found["A->B.offset-syncs.topic.location"] == "target"


def test_worker_settings_have_the_destination_prefix() -> None:
    """Without it MirrorMaker drops them silently, and offsets are flushed every 60 s."""
    found = properties()
    for name in (
        "offset.flush.interval.ms",
        "session.timeout.ms",
        "scheduled.rebalance.max.delay.ms",
        "plugin.discovery",
    ):
        assert f"B.{name}" in found


def test_every_internal_topic_has_the_replicas_of_the_destination() -> None:
    factors = {
        name: value for name, value in properties().items() if name.endswith("replication.factor")
    }
    assert len(factors) == 7
    assert set(factors.values()) == {"3"}


def test_isolation_is_that_of_the_consumer_of_the_source() -> None:
    assert properties()["A.consumer.isolation.level"] == "read_committed"
    assert (
        properties(isolation="read_uncommitted")["A.consumer.isolation.level"] == "read_uncommitted"
    )


def test_exactly_once_is_transactional_and_has_an_internal_listener() -> None:
    once = properties(delivery="exactly-once").items() - properties().items()
    assert dict(once) == {
        "B.exactly.once.source.support": "enabled",
        "dedicated.mode.enable.internal.rest": "true",
        "listeners": "http://127.0.0.1:4711",
        "A->B.transaction.boundary": "interval",
        "A->B.transaction.boundary.interval.ms": "500",
        "B.producer.transaction.timeout.ms": "10000",
    }


def test_groups_are_synced_unless_there_are_none() -> None:
    assert properties(groups="app-.*")["A->B.groups"] == "app-.*"
    none = properties(groups="")
    assert none["A->B.emit.checkpoints.enabled"] == "false"
    assert "sync.group.offsets.enabled" not in none


def test_properties_are_one_line_each() -> None:
    values = properties(delivery="exactly-once")
    lines = properties_file(values).splitlines()
    read = [line.replace("\\\\", "\\").partition("=")[::2] for line in lines]
    assert read == list(values.items())


def test_a_worker_enters_secured_clusters_and_its_password_stays_in_a_file() -> None:
    entry = Security(
        protocol="SASL_SSL",
        authority="/private/ca.pem",
        mechanism="SCRAM-SHA-512",
        username="mirror",
        password="hidden",
        file="/private/mirror.properties",
    )
    inner = Security(protocol="SSL", authority="/private/b.pem", identity="/private/mirror.pem")
    found = mm2_config.properties(
        mm2_config.options({}),
        LINK,
        source=Address("a:1", entry),
        destination=Address("b:1", inner),
        topics=".*",
        replicas=1,
        port=0,
    )
    assert "hidden" not in properties_file(found)
    assert found["A.security.protocol"] == "SASL_SSL"
    assert found["A.sasl.jaas.config"] == "${file:/private/mirror.properties:sasl.jaas.config}"
    assert found["config.providers"] == "file"
    assert found["B.ssl.keystore.location"] == "/private/mirror.pem"
    assert "security.protocol" not in {name.partition(".")[2] for name in properties()}


# Patterns that java.util.regex.Pattern rejects are found early where Python can tell, and none that
# it accepts is refused.


@pytest.mark.parametrize(
    "pattern",
    [
        "", "a|", "|", "a}", "a]", "[]a]", "[^]a]", "[a-]", "[a-[b]]", "[&a]", "[a&&]", "[a&&[b]]",
        "^*$", "$+", "a+?", "a++", "[]()]", "[^](]x", "(?<name>a|b)?", "a{2}+", "a{2}{2}", "[{]",
        "(a)*", "(?:a)", "(?=a)*", "(?!a).*", "(?<n>a)", "(?<!ab?c)d", "(?i)a", "(?i:a)", "(?-i)a",
        "(?)", "a(?i)", "(?U)a", "a{1,3}", "a{2,}",
    ],
)  # fmt: skip
def test_patterns_that_java_accepts_are_accepted(pattern: str) -> None:
    assert reason_against(pattern) == ""


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("[", "unterminated character set"),
        ("[a-", "unterminated character set"),
        ("[z-a]", "bad character range z-a"),
        ("(", "missing ), unterminated subpattern"),
        (")", "unbalanced parenthesis"),
        ("(?", "unexpected end of pattern"),
        ("(?<n>a)(?<n>b)", "redefinition of group name 'n'"),
        ("*", "nothing to repeat"),
        ("a|+", "nothing to repeat"),
        ("a{", "a '{' that does not begin"),
        ("a{1", "a '{' that does not begin"),
        ("a{,3}", "a '{' that does not begin"),
        ("a{3,1}", "min repeat greater than max repeat"),
        ("a{9999999999}", "the repetition number is too large"),
    ],
)
def test_patterns_that_java_refuses_are_refused_with_the_reason(pattern: str, why: str) -> None:
    assert why in reason_against(pattern)


@pytest.mark.spark
def test_no_pattern_that_java_accepts_is_refused(spark: SparkSession) -> None:
    """Compared with Java itself, on random patterns; most of what it rejects is found early."""
    rng = random.Random(5)
    parts = [*"aabz[](){}|*+?^$.-,&123", "[a-z]", "(?:", "(?i)", "(?=", "(?<n>", "(?<=", "{2}"]
    parts += ["{3,1}", "&&", "[^", "a{", "-["]
    assert spark._jvm is not None
    pattern = spark._jvm.java.util.regex.Pattern
    rejected = found = 0
    for _ in range(1000):
        text = "".join(rng.choice(parts) for _ in range(rng.randrange(1, 7)))
        reason = reason_against(text)
        try:
            pattern.compile(text)
        except PySparkException:  # PatternSyntaxException
            rejected += 1
            found += bool(reason)
        else:
            assert not reason, text
    assert found > 0.8 * rejected > 300


@pytest.mark.parametrize(
    ("trace", "cause"),
    [
        (
            "org.apache.kafka.connect.errors.ConnectException: Unrecoverable exception\n\tat a.b\n"
            "Caused by: org.apache.kafka.common.errors.RecordTooLargeException: 101 bytes.\n",
            "RecordTooLargeException: 101 bytes",
        ),
        ("java.lang.NullPointerException\n\tat a.b(C.java:1)", "NullPointerException"),
        ("", "Connect gives no reason"),
    ],
)
def test_the_cause_of_a_failed_task(trace: str, cause: str) -> None:
    assert mm2._cause(trace) == cause
