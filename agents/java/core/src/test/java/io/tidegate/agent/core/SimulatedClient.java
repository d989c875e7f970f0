package io.tidegate.agent.core;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * A consumer's client and its group's offsets. Its position is none until something is delivered;
 * without a committed offset it begins at the log's end.
 */
final class SimulatedClient {
  /** A record that the application was given. */
  record Delivered(Partition partition, long offset) {}

  final Map<Partition, Long> committed;
  final Map<Partition, Long> logEnd;
  final Map<Partition, Long> position = new HashMap<>();
  final Map<Partition, Long> next = new HashMap<>();
  final Set<Partition> paused = new HashSet<>();
  final List<Delivered> delivered = new ArrayList<>();

  SimulatedClient(Map<Partition, Long> committed, Map<Partition, Long> logEnd) {
    this.committed = committed;
    this.logEnd = logEnd;
  }

  void assign(Collection<Partition> partitions) {
    for (Partition partition : partitions) {
      next.put(partition, committed.getOrDefault(partition, logEnd.getOrDefault(partition, 0L)));
      position.put(partition, Offsets.NONE);
    }
  }

  void seek(Partition partition, long offset) {
    next.put(partition, offset);
    position.put(partition, Offsets.NONE);
  }

  void begin(Partition partition, Start start) {
    seek(partition, start == Start.EARLIEST ? 0 : logEnd.getOrDefault(partition, 0L));
  }

  void deliver(Partition partition, long offset) {
    delivered.add(new Delivered(partition, offset));
    next.put(partition, offset + 1);
    position.put(partition, offset + 1);
  }
}
