"""What lies below all: arithmetic, files, hashes, interrupts, memory, threads."""
