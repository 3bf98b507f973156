"""What backs the project's figures and claims; not part of the distribution."""
