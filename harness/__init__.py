"""The recording half of linkflap: runtimes, mirrors, workloads, capture, and the run that ties them
together."""
