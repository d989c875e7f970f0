package io.tidegate.agent.runtime;

import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/** Takes records at or beyond their partition's limit out of what a poll has returned. */
final class Limits {
  private final ConsumerGate gate;
  private final GovernedClient client;

  Limits(ConsumerGate gate, GovernedClient client) {
    this.gate = gate;
    this.client = client;
  }

  /** By partition the offset after the last of these records. */
  static Map<TopicPartition, Long> ends(ConsumerRecords<?, ?> records) {
    Map<TopicPartition, Long> ends = new HashMap<>();
    for (TopicPartition each : records.partitions()) {
      List<? extends ConsumerRecord<?, ?>> batch = records.records(each);
      ends.put(each, batch.get(batch.size() - 1).offset() + 1);
    }
    return ends;
  }

  /** Those that may be handed out. The client is moved back to the first one of the rest. */
  <K, V> ConsumerRecords<K, V> below(ConsumerRecords<K, V> records) {
    Map<TopicPartition, List<ConsumerRecord<K, V>>> kept = new LinkedHashMap<>();
    Map<TopicPartition, Long> cut = new HashMap<>();
    for (TopicPartition each : records.partitions()) {
      List<ConsumerRecord<K, V>> batch = records.records(each);
      // Not by an iterator: another agent may have one tell that a record is processed.
      List<Long> offsets = new ArrayList<>(batch.size());
      for (int i = 0; i < batch.size(); i++) {
        offsets.add(batch.get(i).offset());
      }
      int count = gate.belowLimit(each, offsets);
      if (count < batch.size()) {
        // Before anything is taken out: where it cannot be moved, nothing may be lost.
        moveBack(each, offsets.get(count));
        cut.put(each, offsets.get(count));
      }
      if (count > 0) {
        kept.put(each, count < batch.size() ? batch.subList(0, count) : batch);
      }
    }
    return cut.isEmpty() ? records : made(records, kept, cut);
  }

  private void moveBack(TopicPartition partition, long offset) {
    try {
      client.seek(partition, offset);
    } catch (IllegalStateException notMoved) {
      if (client.assigned().contains(partition)) {
        throw notMoved;
      }
      // It was taken away meanwhile: whoever has it now begins at the committed offset.
    }
  }

  /** From 4.0 on they also have the offsets that follow each partition's. */
  @SuppressWarnings("unchecked")
  private static <K, V> ConsumerRecords<K, V> made(
      ConsumerRecords<K, V> records,
      Map<TopicPartition, List<ConsumerRecord<K, V>>> kept,
      Map<TopicPartition, Long> cut) {
    try {
      Constructor<?> withNext = ConsumerRecords.class.getConstructor(Map.class, Map.class);
      Map<TopicPartition, OffsetAndMetadata> next =
          new HashMap<>(
              (Map<TopicPartition, OffsetAndMetadata>)
                  ConsumerRecords.class.getMethod("nextOffsets").invoke(records));
      cut.forEach((partition, offset) -> next.put(partition, new OffsetAndMetadata(offset)));
      return (ConsumerRecords<K, V>) withNext.newInstance(kept, next);
    } catch (NoSuchMethodException earlier) {
      return new ConsumerRecords<>(kept);
    } catch (InvocationTargetException thrown) {
      throw new IllegalStateException(thrown.getCause());
    } catch (ReflectiveOperationException impossible) {
      throw new IllegalStateException(impossible);
    }
  }
}
