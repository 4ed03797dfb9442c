"""Readers that run inside a job: its log as it is written, and the files that it leaves."""
