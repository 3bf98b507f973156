"""autoplan's built-in plugin for IPU devices."""
