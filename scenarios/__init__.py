"""What is run: models traced into graphs, instances, arrivals."""
