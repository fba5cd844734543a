"""Jobs of one cluster sent to the best of several, and elsewhere when a cluster is lost."""
