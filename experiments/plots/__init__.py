"""Figures. Matplotlib is imported only when one is drawn."""
