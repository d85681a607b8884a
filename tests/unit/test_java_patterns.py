"""Patterns that java.util.regex.Pattern accepts: its recorded answers, and which patterns linkflap
accepts without a JVM."""

from __future__ import annotations

import random

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from linkflap.harness.mirrors.java_patterns import reason_against


@pytest.mark.parametrize(
    "pattern",
    [
        "", "a|", "|", "a}", "a]", "[]a]", "[^]a]", "[a-]", "[a-[b]]", "[&a]", "[a&&]", "[a&&[b]]",
        "^*", "$+", "a+?", "a{2}+",
        "(a)*", "(?:a)", "(?=a)*", "(?!a).*", "(?<n>a)", "(?<!ab?c)d", "(?i)a", "(?i:a)", "(?-i)a",
        "(?)", "a{1,3}", "a{2,}",
    ],
)  # fmt: skip
def test_patterns_that_java_accepts_are_accepted(pattern: str) -> None:
    assert reason_against(pattern) == ""


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("[", "a '[' without its ']'"),
        ("[]", "a '[' without its ']'"),
        ("[a-", "a '[' without its ']'"),
        ("[a[b]", "a '[' without its ']'"),
        ("[&&]", "'&&' without operands"),
        ("[z-a]", "the range z-a"),
        ("(", "a '(' without its ')'"),
        (")", "a ')' without its '('"),
        ("(?", "does not begin a group"),
        ("(?P<x>a)", "'(?P', which does not begin a group"),
        ("(?<1>a)", "without a name"),
        ("(?<n>a)(?<n>b)", "two groups with the name n"),
        ("*", "nothing before '*' to repeat"),
        ("a|+", "nothing before '+' to repeat"),
        ("a**", "nothing before '*' to repeat"),
        ("(?i)*", "nothing before '*' to repeat"),
        ("{", "nothing before '{' to repeat"),
        ("a{", "a '{' that does not begin"),
        ("a{1", "a '{' that does not begin"),
        ("a{,3}", "a '{' that does not begin"),
        ("a{3,1}", "{3,1}, which is an impossible number of times"),
        ("a{9999999999}", "which is an impossible number of times"),
        ("(?<=a*)b", "a look-behind of unlimited length"),
    ],
)
def test_patterns_that_java_refuses_are_refused_with_the_reason(pattern: str, why: str) -> None:
    assert why in reason_against(pattern)


@pytest.mark.spark
def test_no_pattern_that_java_refuses_is_accepted(spark: SparkSession) -> None:
    """Compared with Java itself, on random patterns."""
    rng = random.Random(5)
    parts = [
        *"aabz[](){}|*+?^$.-,&123",
        "[a-z]",
        "(?:",
        "(?i)",
        "(?=",
        "(?<n>",
        "(?<=",
        "{2}",
        "{3,1}",
        "&&",
        "[^",
        "a{",
        "-[",
    ]
    assert spark._jvm is not None
    pattern = spark._jvm.java.util.regex.Pattern
    refused = 0
    for _ in range(1500):
        text = "".join(rng.choice(parts) for _ in range(rng.randrange(1, 7)))
        try:
            pattern.compile(text)
        except PySparkException:  # PatternSyntaxException
            refused += 1
            assert reason_against(text), text
    assert 300 < refused < 1500
