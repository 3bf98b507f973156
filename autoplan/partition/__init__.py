"""Cutting a graph: METIS, halo maps, shards."""
