"""Measurements and proofs that run the engine itself."""
