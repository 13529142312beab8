"""A site: the server of the network that serves its own clients and talks to its neighbours."""
