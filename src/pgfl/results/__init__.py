"""Results: the object, its folder on disk, and the report that shows it."""
