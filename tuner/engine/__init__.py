"""The bundled speculative decoding engine: its own process, knows nothing of the service."""
