"""Control groups, memory and CPU limits, and the processes of a job."""
