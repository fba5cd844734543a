"""What an installation of Rota in a cluster consists of, and how it gets there: manifests, a chart, a base, install."""
