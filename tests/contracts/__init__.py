"""What every implementation of a seam must do, whoever wrote it: each file runs over all that are registered."""
