"""Dynamic resource allocation: devices of ResourceSlices, selected by CEL expressions, for ResourceClaims."""
