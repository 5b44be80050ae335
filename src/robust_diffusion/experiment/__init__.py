"""From a configuration to a recorded run: protocol, sweeps, progress and result tables."""
