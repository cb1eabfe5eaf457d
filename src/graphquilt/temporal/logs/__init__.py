"""Logs as arrays: flows and events from every layout that is recognised, and lists of hosts."""
