"""Train a load predictor, and hold it against simpler ones on time that it has not seen."""
