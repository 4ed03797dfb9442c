"""The two containers of a pod: the trial, and who keeps its files until they are fetched."""
