"""What the measurement of real processes over shaped links is made of."""
