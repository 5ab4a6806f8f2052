"""The engine over HTTP: OpenAI's API, the spec endpoints, metrics."""
