"""`pgfl studio`: a local page to play with trainings, one's own data, runs and networks."""
