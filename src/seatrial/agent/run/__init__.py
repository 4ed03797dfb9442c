"""Runs the steps of a job and records what happens."""
