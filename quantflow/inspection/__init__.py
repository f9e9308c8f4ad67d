"""Whether the model that arrived is sound: its weights, its tokenizer, and what it says."""
