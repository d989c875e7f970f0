"""Produces ten orders a second to four partitions, until it is stopped: ``python produce.py``."""

import itertools
import json
import os
import signal
import sys
import time

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

SERVERS = {"bootstrap.servers": os.environ["KAFKA"]}
TOPIC = os.environ.get("TOPIC", "orders")


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # how a pod is asked to end
    admin = AdminClient(SERVERS)
    try:
        admin.create_topics([NewTopic(TOPIC, num_partitions=4)])[TOPIC].result()
    except KafkaException as error:
        if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
            raise
    producer = Producer(SERVERS)
    for number in itertools.count():
        producer.produce(TOPIC, json.dumps({"order": number}), partition=number % 4)
        producer.poll(0)
        time.sleep(0.1)


if __name__ == "__main__":
    main()
