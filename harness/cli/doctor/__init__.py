"""`linkflap doctor`: what this machine has and lacks for each runtime, and how to fix it. Fetches,
builds and starts nothing."""
