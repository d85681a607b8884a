"""What `import linkflap` offers, in typed pieces; nothing below imports it but the pytest fixtures.

judged      what a run came to
runs        run, verify
"""
