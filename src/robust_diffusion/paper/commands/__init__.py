"""Commands that read or run what is of this paper alone."""

COMMANDS = {
    "claims": "judge the paper's sentences on the records",
    "dashboard": "create or update W&B views of the runs of each table",
    "figure": "draw a figure of the paper",
    "report": "write tables, charts, claims and figures as one HTML page",
    "table": "show a table of the paper as the records have it",
}
"""Purpose of each; `run` imports the module of that name, and calls `run_<name>_command`."""
