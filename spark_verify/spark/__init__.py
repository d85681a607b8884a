"""The one Spark job from run directories to findings, and its session."""
