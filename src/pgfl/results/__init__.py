"""What a run leaves: the result, its folder on disk, and the report that shows it."""
