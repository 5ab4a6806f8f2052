"""Exact choice of tokens: from logits and drafts to what each row keeps and what follows."""
