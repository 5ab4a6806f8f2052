"""One use case a file: fetch, call the policy, store, act. Nothing is decided here."""
