"""Room in memory spaces: tensors, weights, transfers that wait for it."""
