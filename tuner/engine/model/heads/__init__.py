"""Trained heads that draft from the target's hidden states: their arithmetic and their files."""
