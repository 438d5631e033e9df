"""Real jobs from raw data to answers, compared with the usual tools."""
