"""The content of reports, without formatting: runs, cells, causes, changes, metric series, comparisons."""
