"""The process runtime: brokers, proxies and services as plain child processes on loopback. No engine, no root, no images."""

from harness.runtimes.process.deployment import ProcessDeployment, deploy

__all__ = ["ProcessDeployment", "deploy"]
