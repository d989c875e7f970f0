"""``ConsumerGroupPause``: from what is asked for to holds in the control topic, and from acks to its status."""
