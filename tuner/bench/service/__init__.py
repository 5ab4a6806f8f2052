"""The whole service on the real engine in wall-clock time: arms in interleaved blocks."""
