"""Requests and streams to one API server over kept connections, through a proxy where there is one."""
