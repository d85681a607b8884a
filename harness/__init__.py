"""Real clusters, and what runs beside them: runtimes, links, mirrors, clients, capture, and below
them Kafka's log format and protocol, the run directory, and the resources of this machine."""
