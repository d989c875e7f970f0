package io.tidegate.agent.runtime;

import io.tidegate.agent.core.Core;
import io.tidegate.agent.core.CoreSettings;
import io.tidegate.agent.core.Effect;
import io.tidegate.agent.core.Offsets;
import io.tidegate.agent.core.Partition;
import io.tidegate.agent.core.Stage;
import io.tidegate.agent.core.Withholding;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;
import java.util.function.LongSupplier;
import org.apache.kafka.common.TopicPartition;

/**
 * The core of one consumer under a lock, for the threads that call into it: the application's, and
 * the client's own. The client may hold its own lock when it calls, so that nothing here calls the
 * client.
 */
final class ConsumerGate {
  private final CoreSettings settings;
  private final Core core;
  private final Withholding withholding;
  private final Link link;
  private final LongSupplier clock;
  private final Runnable wake;
  private final Map<Partition, Long> committed = new HashMap<>();

  /** By partition the offset after the last record that was handed to the application. */
  private final Map<Partition, Long> delivered = new HashMap<>();

  private volatile Set<TopicPartition> withheld = Collections.emptySet();
  private volatile Set<TopicPartition> unplaced = Collections.emptySet();

  /**
   * @param clock nanoseconds that only go forward
   * @param wake called, on any thread, when there may be work that was not there before
   */
  ConsumerGate(CoreSettings settings, Link link, LongSupplier clock, Runnable wake) {
    this.settings = settings;
    this.core = new Core(settings);
    this.withholding = core.withholding();
    this.link = link;
    this.clock = clock;
    this.wake = wake;
  }

  /** The consumer group's id. */
  String group() {
    return settings.group();
  }

  static Partition partition(TopicPartition partition) {
    return new Partition(partition.topic(), partition.partition());
  }

  static TopicPartition topicPartition(Partition partition) {
    return new TopicPartition(partition.topic(), partition.number());
  }

  // --- read by the client for each batch, without the lock

  /** Those of which nothing may be handed out; never changed. */
  Set<TopicPartition> withheld() {
    return withheld;
  }

  /** Those that must not be given a position by the client's own rule; never changed. */
  Set<TopicPartition> unplaced() {
    return unplaced;
  }

  /** Whether some partition, of whatever group, has a limit. */
  boolean hasLimits() {
    return !link.known().limits().isEmpty();
  }

  // --- what happens

  /** These are the consumer's now. One that is lost and got back in between was told of twice. */
  synchronized void reassign(Set<TopicPartition> partitions) {
    Set<Partition> now = new HashSet<>();
    partitions.forEach(each -> now.add(partition(each)));
    List<Partition> lost = new ArrayList<>(core.owned());
    lost.removeAll(now);
    core.owned().forEach(now::remove);
    Map<Partition, Long> handedOut = new HashMap<>(delivered);
    handedOut.keySet().retainAll(lost);
    core.know(link.known());
    core.revoked(lost, handedOut);
    for (Collection<Partition> changed : Arrays.asList(lost, now)) {
      delivered.keySet().removeAll(changed);
      committed.keySet().removeAll(changed);
    }
    if (!now.isEmpty()) {
      Set<String> topics = new HashSet<>();
      if (settings.rule().isPresent()) {
        now.forEach(each -> topics.add(each.topic()));
      }
      core.assigned(now, link.ask(topics), Collections.emptySet(), clock.getAsLong());
    }
    show();
  }

  /** The application itself has moved these. */
  synchronized void sought(Collection<TopicPartition> partitions) {
    for (TopicPartition each : partitions) {
      delivered.remove(partition(each));
      core.appSought(partition(each));
    }
    show();
  }

  /** The agent has moved these: nothing was delivered of them since. */
  synchronized void moved(Collection<Partition> partitions) {
    delivered.keySet().removeAll(partitions);
  }

  /** The application was given records up to before these offsets. */
  synchronized void delivered(Map<TopicPartition, Long> ends) {
    ends.forEach(
        (each, end) -> {
          Partition partition = partition(each);
          if (core.stage(partition).isPresent()) {
            delivered.put(partition, end);
          }
        });
  }

  /** Of each the offset after the last record delivered; {@link Offsets#NONE}: none was. */
  synchronized Map<Partition, Long> delivered(Collection<Partition> partitions) {
    Map<Partition, Long> found = new LinkedHashMap<>();
    partitions.forEach(each -> found.put(each, delivered.getOrDefault(each, Offsets.NONE)));
    return found;
  }

  /** Whether it delivers, so that it is only asked where it is. */
  synchronized boolean isOpen(Partition partition) {
    return core.stage(partition).filter(stage -> stage == Stage.OPEN).isPresent();
  }

  /** Whether the consumer has it. */
  synchronized boolean owns(Partition partition) {
    return core.stage(partition).isPresent();
  }

  /**
   * How many of these records, by their offsets and in order, may be handed to the application for
   * its partition's limit. The rest is to be fetched again.
   */
  synchronized int belowLimit(TopicPartition of, List<Long> offsets) {
    core.know(link.known());
    Partition partition = partition(of);
    for (int count = 0; count < offsets.size(); count++) {
      if (withholding.isBeyondLimit(partition, offsets.get(count))) {
        withholding.withheld(Collections.singletonMap(partition, offsets.get(count)));
        wake.run();
        return count;
      }
    }
    return offsets.size();
  }

  // --- commits

  /** Offsets are about to be sent: which must not be, and by which number that is called. */
  synchronized Passed commitBegins(Map<Partition, Long> offsets) {
    core.know(link.known());
    // An auto-commit has all positions in it, also those that it need not commit: nothing to be
    // said of these. The client also commits positions at which nothing was delivered yet.
    Set<Partition> old = new HashSet<>(withholding.unplaced());
    for (Partition sealed : withholding.sealed()) {
      Long offset = offsets.get(sealed);
      if (offset != null && offset.equals(committed.get(sealed))) {
        old.add(sealed);
      }
    }
    old.retainAll(offsets.keySet());
    Map<Partition, Long> rest = new HashMap<>(offsets);
    rest.keySet().removeAll(old);
    Set<Partition> dropped =
        withholding.dropped(rest, each -> delivered.getOrDefault(each, Offsets.NONE));
    Set<Partition> all = new HashSet<>(old);
    all.addAll(dropped);
    return new Passed(this, withholding.commitBegins(), all);
  }

  private void commitEnds(long call) {
    boolean mayWait;
    synchronized (this) {
      withholding.commitEnds(call);
      mayWait = !withholding.sealed().isEmpty();
    }
    if (mayWait) {
      wake.run();
    }
  }

  /** A commit that may go on without {@link #dropped}. */
  static final class Passed {
    private final ConsumerGate gate;
    private final long call;
    private final Set<Partition> dropped;

    private Passed(ConsumerGate gate, long call, Set<Partition> dropped) {
      this.gate = gate;
      this.call = call;
      this.dropped = dropped;
    }

    /** What is to be taken out of it. */
    Set<Partition> dropped() {
      return dropped;
    }

    /** Whether the consumer has it. */
    boolean owns(Partition partition) {
      return gate.owns(partition);
    }

    /** The client has had the brokers' answer, or has given up. */
    void ends() {
      gate.commitEnds(call);
    }
  }

  // --- work

  /** The next effect that is due. */
  synchronized Optional<Effect> work() {
    core.know(link.known());
    Optional<Effect> effect = core.work(clock.getAsLong());
    show();
    return effect;
  }

  /** When {@link #work} may have something by itself; empty: not before something happens. */
  synchronized OptionalLong wakesAt() {
    return core.wakesAt();
  }

  /** It was carried out. */
  synchronized void done(Effect effect) {
    core.done(effect, clock.getAsLong());
    show();
  }

  /** It was carried out for these. */
  synchronized void done(Effect effect, Collection<Partition> moved) {
    core.done(effect, clock.getAsLong(), moved);
    show();
  }

  /** Positions were asked for. */
  synchronized void done(Effect.Position effect, Map<Partition, Long> offsets) {
    core.done(effect, clock.getAsLong(), offsets);
    show();
  }

  /** Committed offsets were asked for. */
  synchronized void done(Effect.Committed effect, Map<Partition, Long> offsets) {
    committed.putAll(offsets);
    core.done(effect, clock.getAsLong(), offsets);
    show();
  }

  /** It was not carried out, or that is not known. */
  synchronized void failed(Effect effect) {
    core.failed(effect, clock.getAsLong());
    show();
  }

  private void show() {
    Set<TopicPartition> notOpen = new HashSet<>();
    for (Partition each : core.owned()) {
      if (core.stage(each).get() != Stage.OPEN) {
        notOpen.add(topicPartition(each));
      }
    }
    Set<TopicPartition> notPlaced = new HashSet<>();
    withholding.unplaced().forEach(each -> notPlaced.add(topicPartition(each)));
    withheld = notOpen.isEmpty() ? Collections.emptySet() : notOpen;
    unplaced = notPlaced.isEmpty() ? Collections.emptySet() : notPlaced;
  }
}
