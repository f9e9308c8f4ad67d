"""What quantizing each unit costs in KL, and which precision each unit gets because of it."""
