"""From a configuration to a recorded run: the protocol, the sweeps, and what they show."""
