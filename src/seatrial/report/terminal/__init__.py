"""What a terminal shows: the live board, the summary of a run, the history and comparisons."""
