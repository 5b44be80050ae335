"""Injection attacks: new nodes with new edges; original nodes stay as they are."""
