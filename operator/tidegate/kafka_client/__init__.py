"""The only code that talks to brokers: raw requests, and confluent_kafka for records."""
