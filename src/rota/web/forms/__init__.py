"""Forms of what admins and maintainers change: budgets, prices, data sets and templates."""
