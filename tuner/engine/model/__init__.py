"""The target and its like: weights on disk, a pass over KV slots, the tokenizer."""
