"""What is broken, when, and in which scenario."""
