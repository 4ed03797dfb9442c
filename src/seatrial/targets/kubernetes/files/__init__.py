"""What a job writes, brought home from its pods: its log, its records, its files, and how far it is."""
