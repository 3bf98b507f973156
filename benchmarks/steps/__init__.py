"""One training step of plain PyG against autoplan on one device, for 14 models: see `benchmarks.steps.__main__`."""
