"""The recipe: schema, loading, overrides, JSON Schema for editors."""
