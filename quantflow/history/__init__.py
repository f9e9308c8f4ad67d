"""What came of runs, over many of them: an embedded database, its trends, and people's decisions."""
