"""A JVM that Python drives: Java's own classes, of any Kafka, called through py4j. No Java of ours,
and no compiler."""
