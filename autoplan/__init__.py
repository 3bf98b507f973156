"""autoplan: how should this model and this graph be spread over these devices, and why. Importing it imports no torch."""
