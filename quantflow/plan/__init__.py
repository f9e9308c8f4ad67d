"""What a run would do and take, told before anything runs."""
