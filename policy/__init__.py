"""Arithmetic only: from observations to a recommendation; no I/O, clock, torch or SQL."""
