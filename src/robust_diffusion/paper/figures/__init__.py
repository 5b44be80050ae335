"""The paper's figures, drawn from trained models."""
