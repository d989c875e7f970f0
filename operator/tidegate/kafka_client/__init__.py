"""What talks to brokers: raw requests, and confluent_kafka for records. Nothing else in here decides anything."""
