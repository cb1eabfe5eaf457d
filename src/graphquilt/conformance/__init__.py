"""Checks that anybody can run on a partitioner, an embedder or a store of their own."""
