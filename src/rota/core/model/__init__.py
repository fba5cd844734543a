"""Values that describe jobs, clusters, tenants and placements."""
