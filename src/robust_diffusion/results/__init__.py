"""Results of any study: tables over records, paired comparison, significance, loggers."""
