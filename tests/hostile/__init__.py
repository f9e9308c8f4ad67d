"""One list of hostile and broken inputs, each through the real command: message, exit code, no trace."""
