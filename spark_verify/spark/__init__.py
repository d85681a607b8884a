"""The one Spark job from run directories to findings, and the session that it runs in."""
