"""autoplan's built-in plugin for TPU devices."""
