"""An ordinary consumer that prints what it receives: ``python consume.py``. It knows nothing of Tidegate."""

import os
import signal
import sys

from confluent_kafka import Consumer

SETTINGS = {
    "bootstrap.servers": os.environ["KAFKA"],
    "group.id": os.environ.get("GROUP", "payments"),
    "auto.offset.reset": "earliest",
    "auto.commit.interval.ms": 1000,
}


def main() -> None:
    consumer = Consumer(SETTINGS)
    consumer.subscribe([os.environ.get("TOPIC", "orders")])
    # How a pod is asked to end. A consumer that is killed stays a member of the group until its session times out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        while True:
            record = consumer.poll(1)
            if record is None:
                continue
            if record.error():
                print(record.error(), flush=True)
                continue
            print(f"partition {record.partition()}  offset {record.offset()}  {record.value().decode()}", flush=True)
    finally:
        consumer.close()


if __name__ == "__main__":
    main()
