"""Watches jobs on a cluster and turns their state into events of the target protocol.

Data flows one way: `feeds` keep the state (`objects`, `jobs`) that the watches report, `ending` and `waiting` interpret
it (pure), and the loop of `watcher` sends the events.
"""
