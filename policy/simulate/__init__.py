"""Worlds in which policies compete, the peers they compete with, and the scores.

A world is hidden: a policy is given the batch it has to serve and, afterwards, what an engine would
have counted. Only oracles, and peers defined by perfect knowledge, are handed the world itself.
"""
