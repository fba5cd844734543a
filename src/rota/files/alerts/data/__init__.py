"""The alert rules that come with Rota, for its own alerts and for Prometheus, and the Grafana dashboard."""
