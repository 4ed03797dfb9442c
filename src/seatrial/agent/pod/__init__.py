"""The two containers of a pod: the trial, and the keeper of its files until they are fetched."""
