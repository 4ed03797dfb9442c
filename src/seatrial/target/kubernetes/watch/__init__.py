"""What becomes of jobs on a cluster: watched, judged, given as events of the target protocol."""
