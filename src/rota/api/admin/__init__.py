"""Routes for admins only: tenants, tokens and the audit log."""
