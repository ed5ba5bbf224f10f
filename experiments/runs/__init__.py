"""A run and what it starts from: configuration, catalogue, graph, devices, believed times; the folders that runs leave."""
