"""The HTML report, and a page for each executed notebook."""
