"""Starts a job on a machine: forked by a zygote, run by a supervisor, in a container or not."""
