"""The service's own HTTP side: the console on the store, access, JSON API, request guards."""
