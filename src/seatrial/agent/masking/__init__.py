"""Secrets are replaced in all that leaves a job."""
