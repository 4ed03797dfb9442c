"""Replaces secrets in everything that leaves a job."""
