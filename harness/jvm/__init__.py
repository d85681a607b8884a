"""A JVM that Python drives: Java's own classes, of any Kafka, called through py4j. linkflap has no
Java code and needs no compiler."""
