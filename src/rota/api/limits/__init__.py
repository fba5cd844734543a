"""What a caller may take of the manager: connections, requests, submissions."""
