"""Data, model and hybrid parallelism of layers, against each other."""
