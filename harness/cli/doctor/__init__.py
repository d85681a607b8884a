"""`linkflap doctor`: shows what each runtime lacks on this machine, and how to fix it. It fetches,
builds and starts nothing."""
