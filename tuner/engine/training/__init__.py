"""Trains the bundled target's draft model: prompts, answers, distillation, measurement."""
