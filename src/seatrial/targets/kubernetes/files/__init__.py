"""Fetches what a job writes from its pods: log, records, files and progress."""
