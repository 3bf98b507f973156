"""Running a plan: communicators, exchanges, launch, training. Needs torch."""
