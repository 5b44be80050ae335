"""Tables, claims, figures and pages of the paper arXiv:2209.07754, a client of the framework."""

PAPER_COMMANDS = {
    "claims": "judge the paper's sentences on the records",
    "figure": "draw a figure of the paper",
    "report": "write tables, charts, claims and figures as one HTML page",
    "table": "show a table of the paper as the records have it",
}
"""Purpose of each command; `run` calls `run_<name>_command` of `paper.commands`."""
