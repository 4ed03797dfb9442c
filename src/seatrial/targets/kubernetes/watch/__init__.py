"""What becomes of jobs on a cluster: watched, judged, given as events of the target protocol.

Data flows one way: `feeds` keep the state (`objects`, `jobs`) that the watches report, `ending` and `waiting` judge it
(pure), and the loop of `watcher` gives the events.
"""
