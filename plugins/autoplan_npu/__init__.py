"""autoplan's built-in plugin for NPU devices."""
