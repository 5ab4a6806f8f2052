"""One file per drafting method, all under the contract in `base.py`."""
