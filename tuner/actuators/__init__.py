"""Bringing a plan into force and reading back what is live, one file per engine."""
