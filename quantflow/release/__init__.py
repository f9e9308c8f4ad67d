"""What leaves a run: publishing what passed, returning to the version before, checking what one was given."""
