"""Business text to token windows, with accounting."""
