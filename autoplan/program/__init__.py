"""The traced program: steps, guards, code generation, kernels of sharded execution. Needs torch."""
