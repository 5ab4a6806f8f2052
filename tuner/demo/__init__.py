"""The demo: starts engine and service, plays a product's traffic, sums up what happened."""
