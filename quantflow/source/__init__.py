"""Hub id, local folder, GGUF file or wheel: one local safetensors checkpoint with an identity."""
