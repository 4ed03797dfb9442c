"""Readers that run inside a job: its log while it is written, and the files that it leaves.

A named reader is a module with a function `read(data, options)`, which gets the bytes of a file or of a command's
output and returns {"metrics": {name: number}, "verdict": "ok", "failed" or "unjudged", "why": text}; the last two are
optional. It raises ValueError if the data is not in its format. METRICS may declare its metrics: {name: (unit, "lower",
"higher" or None)}. It imports only the standard library.
"""
