"""Reads run directories into views: what is judged, the rows of logs and histories, and one view
per partition."""
