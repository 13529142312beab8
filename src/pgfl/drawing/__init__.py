"""Pictures of networks and curves, for pages, notebooks and matplotlib; they know plain arrays only."""
