"""The command line ``tidegate``: by hand, and without Kubernetes, what the resources do."""
