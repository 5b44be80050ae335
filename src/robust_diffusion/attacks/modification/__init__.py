"""Modification attacks: features of target nodes, and edges that touch one, change in place."""
