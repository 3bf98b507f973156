"""From a model, a loss and a graph to a program and an OpGraph. Needs torch."""
