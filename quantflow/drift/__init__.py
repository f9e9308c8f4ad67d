"""Whether calibration text is like what the model reads in production."""
