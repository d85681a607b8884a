"""The images that clusters, proxies and the shadow mirror run from: built here, pulled, or given by
the user."""
