"""Worker processes beside the loop: forecasts, what-if simulations, retraining."""
