"""The stage graph, the runner, the content-addressed store, events and progress."""
