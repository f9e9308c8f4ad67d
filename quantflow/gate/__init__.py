"""Paired statistics, criteria and verdicts."""
