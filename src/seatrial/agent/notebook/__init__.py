"""Runs notebooks with the runtime's own Jupyter."""
