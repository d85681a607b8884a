"""`linkflap doctor`: what this machine has and lacks for each runtime, and how to fix it. It
fetches, builds and starts nothing."""
