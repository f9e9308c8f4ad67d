"""How an artifact is run to be measured: torch here, vLLM in an environment of its own."""
