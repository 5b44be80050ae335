"""Ground floor of the package: arithmetic, files, hashes, interrupts, memory, threads."""
