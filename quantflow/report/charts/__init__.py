"""Drawings of the report: from its parts to shapes on a plane, in the units of each drawing's view box."""
