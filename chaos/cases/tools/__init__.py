"""Tools that the steps of several cases use: clients, raw requests, logs as bytes."""
