"""Charts of the page, drawn as SVG from the entries of tables."""
