"""``KafkaConnection``: credentials, what a tenant is allowed, and what was last observed of the cluster."""
