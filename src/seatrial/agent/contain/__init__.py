"""What holds a job's processes: control groups, memory, CPUs, and who belongs to the job."""
