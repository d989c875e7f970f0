"""Which of several processes of the operator leads, by a Lease of the cluster."""
