"""What was seen: records, and one collector per source. Never decides, never stores."""
