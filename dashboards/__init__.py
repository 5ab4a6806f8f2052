"""What operators see: the console's pages, and the seams through which they read and act."""
