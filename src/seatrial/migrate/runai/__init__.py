"""The commands of Run:ai's scale test tool: submit, sample, and plot times from its two files."""
