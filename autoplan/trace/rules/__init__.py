"""Rules: dim roles, cost and block strategies of ATen ops, one family a file."""
