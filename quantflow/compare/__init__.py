"""Runs and artifacts side by side, paired where they were measured at the same positions."""
