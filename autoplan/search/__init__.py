"""The search: strategies, blocks, the ILP, the exhaustive solver, candidates."""
