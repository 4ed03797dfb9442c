"""Reads the files that a job made: JSON and profiles."""
