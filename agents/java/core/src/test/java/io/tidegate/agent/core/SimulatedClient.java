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
 * without a committed offset it begins at the log's end, unless another place is chosen. What is
 * delivered is stored for the next commit of what is stored.
 */
final class SimulatedClient {
  /** A record that the application was given. */
  record Delivered(Partition partition, long offset) {}

  final Map<Partition, Long> committed;
  final Map<Partition, Long> logEnd;
  final Map<Partition, Long> position = new HashMap<>();
  final Map<Partition, Long> next = new HashMap<>();
  final Map<Partition, Long> stored = new HashMap<>();
  final Set<Partition> paused = new HashSet<>();
  final List<Delivered> delivered = new ArrayList<>();

  /** Where it begins that finds no committed offset. */
  Start begins = Start.LATEST;

  /** It stores by itself what is delivered, and what was stored so cannot be forgotten. */
  boolean autoStores;

  /** The application stores what it likes, when it likes. */
  boolean storesLate;

  /** What it commits by itself is lost on its way. */
  boolean losesCommits;

  SimulatedClient(Map<Partition, Long> committed, Map<Partition, Long> logEnd) {
    this.committed = committed;
    this.logEnd = logEnd;
  }

  void assign(Collection<Partition> partitions) {
    for (Partition partition : partitions) {
      begin(partition, begins);
      next.compute(partition, (same, unsaid) -> committed.getOrDefault(same, unsaid));
      stored.remove(partition);
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
    if (!storesLate) {
      stored.put(partition, offset + 1);
    }
  }

  void commitStored(Collection<Partition> partitions) {
    if (!losesCommits) {
      stored.forEach(
          (partition, offset) -> {
            if (partitions.contains(partition)) {
              committed.put(partition, offset);
            }
          });
    }
  }

  void forget(Collection<Partition> partitions) {
    if (!autoStores) {
      stored.keySet().removeAll(partitions);
    }
  }
}
