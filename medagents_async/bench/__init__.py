"""Throughput of a method's own call graph against a server, and against what the server can do."""
