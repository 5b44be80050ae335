"""First words of the command line that run no cell, one module each; `run.COMMANDS` names them."""
