"""The kinds of steps, and the programs that some of them start."""
