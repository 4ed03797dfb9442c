"""HTTP/1.1 requests over reused connections, and local ports that lead through a proxy."""
