"""The tables of accounts: device time by hour, holds of budgets, and messages to be sent."""
