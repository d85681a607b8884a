"""What `import linkflap` offers, in typed pieces; only the pytest fixtures import it.

judged                     what a run came to
runs                       run, verify
deploy, world, shared      clusters of a test's own, or of several tests, and the faults that can be
                           done to them
producer, consumer         confluent-kafka's clients, whose history is recorded
"""
