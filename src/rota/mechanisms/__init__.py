"""What policies share: the list scheduler today; rounds, resizing and sharing as they come."""
