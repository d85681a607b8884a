"""Cases that record and judge a whole run: a check finds the anomaly."""
