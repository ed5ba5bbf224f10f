"""Serving: what selections are trained on and to; networks with early exits over three tiers."""
