"""Plans and results for people."""
