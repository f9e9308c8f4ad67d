"""report.json and the single-file HTML report."""
