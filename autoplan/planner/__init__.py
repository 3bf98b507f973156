"""From a model, a graph and devices to a checked plan, and from a plan back to something that runs (torch)."""
