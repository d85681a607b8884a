"""The images of clusters, proxies and the shadow mirror: built here, pulled, or given by the
user."""
