"""Metrics over many runs: their changes of level, their bounds, and two runs compared; nothing is drawn here."""
