"""Commands that read or run what is of this paper alone."""
