"""Whether this installation and this machine can do what QuantFlow does, and what follows from them."""
