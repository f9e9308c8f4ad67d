"""What this machine has: processor, memory, GPUs. Read from the system, without importing torch."""
