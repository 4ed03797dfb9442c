"""The dashboard: pages of runs and suites, live, for whoever may look at them; it changes nothing."""
