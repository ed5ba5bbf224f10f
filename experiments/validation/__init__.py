"""Simulation held against hardware: cases, measured runs, verdict, report; sealed and saved ones."""
