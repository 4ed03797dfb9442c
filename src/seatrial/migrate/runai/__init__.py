"""What Run:ai's `plotter.py` makes of its two files: a table of times, and pictures."""
