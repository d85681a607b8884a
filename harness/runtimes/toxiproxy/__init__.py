"""Links: the proxied path from one cluster to another, by toxiproxy-server, measured and proven to
be in the path."""
