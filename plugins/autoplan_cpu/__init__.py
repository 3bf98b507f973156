"""autoplan's built-in plugin for CPU devices."""
