"""A decoder seen as embed, blocks and head; families as data; weights read one block at a time."""
