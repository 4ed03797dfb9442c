"""Readers: pure functions from what a program wrote to metrics and facts."""
