package io.tidegate.agent.runtime;

import java.time.Duration;
import java.util.Collections;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.InvalidOffsetException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthenticationException;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.TimeoutException;

/** Takes the control topic's records. One thread of a {@link ControlLink}. */
final class ControlReader {
  private static final Duration POLL = Duration.ofMillis(500);

  /**
   * The same while somebody waits: what is no record, such as a transaction's end, ends no poll.
   */
  private static final Duration SHORT_POLL = Duration.ofMillis(50);

  private final ControlState state;
  private final Clients clients;
  private final TopicPartition partition;
  private final Troubles troubles;

  ControlReader(ControlState state, Clients clients, String topic, Troubles troubles) {
    this.state = state;
    this.clients = clients;
    this.partition = new TopicPartition(topic, 0);
    this.troubles = troubles;
  }

  /** Read what is wanted, until the link is stopped. Throws what keeps it from doing so. */
  void read() throws InterruptedException {
    for (ControlState.Reading reading = state.awaitWanted();
        reading != null;
        reading = state.awaitWanted()) {
      // A client remembers of a topic what may not be true of the next one of its name.
      Consumer<byte[], byte[]> consumer = clients.reader();
      try {
        read(consumer, reading);
      } finally {
        Thread.interrupted();
        consumer.close();
      }
    }
  }

  private void read(Consumer<byte[], byte[]> consumer, ControlState.Reading reading)
      throws InterruptedException {
    consumer.assign(Collections.singleton(partition));
    consumer.seekToBeginning(Collections.singleton(partition));
    state.begin(reading);
    state.take(reading, Collections.emptyList(), 0);
    boolean hasNews = true;
    boolean isRefused = false;
    while (state.isWanted(reading)) {
      try {
        // After a refusal only a long one that brings none shows that the topic may be read now.
        boolean isShort = !isRefused && (hasNews || state.isBehind());
        ConsumerRecords<byte[], byte[]> records = consumer.poll(isShort ? SHORT_POLL : POLL);
        isRefused = false;
        hasNews = !records.isEmpty();
        state.take(reading, records, position(consumer));
      } catch (InvalidOffsetException missed) {
        state.again(reading);
        state.doubt();
      } catch (AuthorizationException | AuthenticationException refused) {
        isRefused = true;
        state.refuse(reading);
        // Looking at the topic takes a smaller right: the keeper may not notice.
        troubles.say(
            "reach", "cannot read control topic " + partition.topic() + ": " + Reason.of(refused));
        state.doubt();
        state.rest(ControlLink.RETRY_NANOS);
      }
    }
  }

  /** Also beyond what is no record. 0: not known yet. */
  private long position(Consumer<byte[], byte[]> consumer) {
    try {
      return consumer.position(partition, Duration.ZERO);
    } catch (TimeoutException unknown) {
      return 0;
    }
  }
}
