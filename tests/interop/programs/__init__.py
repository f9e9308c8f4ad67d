"""Run by interpreters of other environments: each reads a job as JSON and writes what came of it as JSON."""
