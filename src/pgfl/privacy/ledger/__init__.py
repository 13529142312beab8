"""A device's durable account of its releases."""
