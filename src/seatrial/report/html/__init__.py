"""The HTML report, and pages for executed notebooks and logs."""
