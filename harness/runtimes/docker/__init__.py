"""The docker runtime: brokers, proxies and services in containers, on a network of each
deployment's own."""
