"""Terminal output: live progress, the summary of a run, history and comparisons."""
