"""linkflap's one name to import: its packages are the folders at the top of the repository, linked from here.

    linkflap.harness        records a run
    linkflap.chaos          what is broken, and when
    linkflap.topologies     clusters and links
    linkflap.spark_verify   judges what was recorded

The names of files in docs and docstrings are relative to the repository: `harness.model.wait` is `linkflap.harness.model.wait`.
"""
