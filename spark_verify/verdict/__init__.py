"""From findings to the verdict document: what is due, what is allowed, what caused what."""
