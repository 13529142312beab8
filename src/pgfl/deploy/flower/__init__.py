"""Everything that knows Flower, which brings clients and sites together."""
