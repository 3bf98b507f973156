"""Prices: the cost table, collectives, the memory sheet."""
