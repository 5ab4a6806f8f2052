"""The policies that ours is compared with, from their public descriptions.

Every peer decides once a window, sees the batch it has to serve, and gets the same counts.
"""
