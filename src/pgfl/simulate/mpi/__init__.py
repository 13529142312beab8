"""One simulation on many machines: the communicator, the halo exchange and the partition of the servers."""
