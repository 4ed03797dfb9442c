"""Reads the log of a training while it is written: figures, patterns, progress."""
