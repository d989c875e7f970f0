package io.tidegate.agent.core;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * All partition records, fed in order: eight bytes a partition, for there may be many. What they
 * say stays true also where the control topic is lost and made again.
 */
public final class PartitionTable {
  private final Map<String, Map<String, Topic>> topics = new HashMap<>();
  private final Set<String> changed = new HashSet<>();
  private Map<String, List<Discovered>> view = Collections.emptyMap();
  private long taken;

  private static final class Topic {
    private long newest;
    private int size;
    private long[] seenMs = new long[0];

    void set(int partition, long time) {
      if (partition >= seenMs.length) {
        seenMs = Arrays.copyOf(seenMs, Math.max(partition + 1, seenMs.length + seenMs.length / 2));
      }
      if (partition >= size) {
        Arrays.fill(seenMs, size, partition + 1, Discovered.NEVER);
        size = partition + 1;
      }
      seenMs[partition] = time;
    }

    void forget(int partition) {
      if (partition < size) {
        seenMs[partition] = Discovered.NEVER;
      }
      while (size > 0 && seenMs[size - 1] == Discovered.NEVER) {
        size--;
      }
    }
  }

  /** A table of nothing. */
  public PartitionTable() {}

  /** One record. Other kinds are passed over. */
  public void take(DecodedRecord record) {
    if (!(record.key() instanceof PartitionKey)) {
      return;
    }
    PartitionKey key = (PartitionKey) record.key();
    String name = key.partition().topic();
    taken++;
    Map<String, Topic> ids = topics.computeIfAbsent(name, topic -> new LinkedHashMap<>());
    Topic topic = ids.computeIfAbsent(key.topicId(), id -> new Topic());
    if (record.value().isPresent()) {
      PartitionSeen seen = (PartitionSeen) record.value().get();
      topic.set(key.partition().number(), seen.seenMs().orElse(Discovered.INITIAL));
      topic.newest = taken;
    } else {
      topic.forget(key.partition().number());
    }
    if (topic.size == 0) {
      ids.remove(key.topicId());
    }
    if (ids.isEmpty()) {
      topics.remove(name);
    }
    changed.add(name);
  }

  /** By topic name what is said of the topics that have had it; later records do not change it. */
  public Map<String, List<Discovered>> view() {
    if (!changed.isEmpty()) {
      Map<String, List<Discovered>> next = new HashMap<>(view);
      for (String name : changed) {
        List<Discovered> said = new ArrayList<>();
        topics
            .getOrDefault(name, Collections.emptyMap())
            .forEach(
                (id, topic) ->
                    said.add(
                        new Discovered(id, topic.newest, Arrays.copyOf(topic.seenMs, topic.size))));
        if (said.isEmpty()) {
          next.remove(name);
        } else {
          next.put(name, Collections.unmodifiableList(said));
        }
      }
      changed.clear();
      view = Collections.unmodifiableMap(next);
    }
    return view;
  }
}
