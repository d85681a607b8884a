"""Links: the path from one cluster to another through toxiproxy-server, measured, and proven to go
through the proxies."""
