"""Utilities close to the operating system: arithmetic, files, hashes, interrupts, threads."""
