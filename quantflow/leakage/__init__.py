"""Whether items of tasks stand in calibration text."""
