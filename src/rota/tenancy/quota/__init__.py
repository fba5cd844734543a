"""Tenancy `quota`: devices by count, for tenants that may contain tenants."""
