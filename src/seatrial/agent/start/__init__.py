"""Where a job begins on a machine: forked by a zygote, watched over by a supervisor, in a container or not."""
