"""The Python API: `import linkflap` exports the public names of these modules.

runs                       run, verify, and their result
deploy, world, shared      clusters of one test, or of several tests, and the faults on them
producer, consumer         confluent-kafka's clients, with a recorded history
"""
