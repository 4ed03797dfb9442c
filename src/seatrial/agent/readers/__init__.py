"""Readers that run inside a job: its log as it is written, and the files that it leaves.

A reader by name is a module with a function `read(data, options)`, which gets the bytes of a file or of what a command
printed, and returns {"metrics": {name: number}, "verdict": "ok", "failed" or "unjudged", "why": text}; the last two may
be left out. It raises ValueError for what is not in its format. METRICS may say what it gives: {name: (unit, "lower",
"higher" or None)}. It imports nothing but the standard library.
"""
