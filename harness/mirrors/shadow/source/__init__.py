"""The source's side: what a shadow fetches over the link, and from which replica."""
