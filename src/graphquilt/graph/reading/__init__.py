"""Graphs from files and from the objects of other packages, in memory or out of core."""
