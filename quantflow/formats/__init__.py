"""On-disk formats: write and read back."""
