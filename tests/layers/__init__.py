"""Every layer and model of PyG that runs without extra packages, each with a graph to run on."""
