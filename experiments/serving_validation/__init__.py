"""Serving simulated and measured: probes, predictions, outcome, report."""
