"""autoplan's built-in plugin for GPU devices."""
