"""The dashboard: read-only, live pages of runs and suites."""
