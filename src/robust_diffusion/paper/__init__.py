"""The paper arXiv:2209.07754, a client of the framework: tables, claims, figures, pages."""
