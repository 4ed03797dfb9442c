"""A run for other programs: as a table (CSV), as a common test report (CTRF), as metrics, and told to a webhook."""
