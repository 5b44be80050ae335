"""Cells of an experiment: one protocol, the sweeps that run it, and what they show."""
