"""Notifications: messages about jobs and budgets, stored with what they tell of, and sent until they were delivered."""
