"""Commands beside `run`: each module parses, calls, prints and gives the exit code of one."""
