"""The docker runtime: brokers, proxies and services in containers, with one network per
deployment."""
