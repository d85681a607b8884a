"""Logs of clusters that are running and that nobody here started, fetched as a consumer fetches: nothing there is changed."""
