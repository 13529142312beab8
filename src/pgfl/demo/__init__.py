"""A network on one machine, trained on made-up data and compared with the simulator."""
