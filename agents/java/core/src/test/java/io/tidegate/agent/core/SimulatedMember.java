package io.tidegate.agent.core;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;

/** A member of the group: the core with a simulated client below it, on a clock that tests move. */
final class SimulatedMember implements Effect.Driver {
  /** An ack that was sent. */
  record Acked(Partition partition, long epoch, long offset) {}

  final Core core;
  final SimulatedClient client;
  final List<Acked> acks = new ArrayList<>();

  /** Everything that was asked of this driver, carried out or not. */
  final List<Effect> effects = new ArrayList<>();

  /** Kinds of effects that cannot be carried out. */
  final Set<Class<? extends Effect>> failing = new HashSet<>();

  /** Partitions of which the broker does not tell the committed offset: a transaction is open. */
  final Set<Partition> unstable = new HashSet<>();

  /** What happens whenever the client has been asked for positions. */
  Runnable afterPositions = () -> {};

  private final List<SimulatedClient.Delivered> takenOff = new ArrayList<>();
  private long now;

  SimulatedMember(CoreSettings settings, SimulatedClient client, long now) {
    this.core = new Core(settings);
    this.client = client;
    this.now = now;
  }

  void assign(List<Partition> partitions) {
    client.assign(partitions);
    core.assigned(partitions, 1, Set.of(), now);
    client.paused.addAll(partitions);
  }

  void revoke(List<Partition> partitions) {
    Map<Partition, Long> delivered = new HashMap<>(client.position);
    delivered.keySet().retainAll(partitions);
    core.revoked(partitions, delivered);
  }

  /** A fetched batch comes to the application, up to what may not be given to it. */
  void poll(Partition partition, List<Long> offsets) {
    if (client.paused.contains(partition)) {
      return;
    }
    for (long offset : offsets) {
      if (core.withholding().isWithheld(partition, offset)) {
        core.withholding().withheld(Map.of(partition, offset));
        core.withholding().leaked(Set.of(partition), now);
        client.seek(partition, offset);
        return;
      }
      core.withholding().delivers(Map.of(partition, offset + 1));
      client.deliver(partition, offset);
    }
  }

  /** The client counts a record as delivered; the application has not received it. */
  void takeOff(Partition partition, long offset) {
    takenOff.add(new SimulatedClient.Delivered(partition, offset));
    client.next.put(partition, offset + 1);
    client.position.put(partition, offset + 1);
  }

  /** The application receives what was taken off, unless it may not. */
  void handOver(Partition partition) {
    List<SimulatedClient.Delivered> handed =
        takenOff.stream().filter(each -> each.partition().equals(partition)).toList();
    takenOff.removeAll(handed);
    handed.stream()
        .filter(each -> !core.withholding().isWithheld(partition, each.offset()))
        .forEach(client.delivered::add);
  }

  /** Whether it reached the broker. */
  boolean commit(Partition partition, long offset) {
    boolean isDropped =
        !core.withholding()
            .dropped(
                Map.of(partition, offset),
                asked -> client.position.getOrDefault(asked, Offsets.NONE))
            .isEmpty();
    if (!isDropped) {
      client.committed.put(partition, offset);
    }
    return !isDropped;
  }

  /** Do what is due, and whatever comes due until then. */
  void run(long until) {
    while (true) {
      Optional<Effect> effect = core.work(now);
      if (effect.isPresent()) {
        effects.add(effect.get());
        if (failing.contains(effect.get().getClass())) {
          core.failed(effect.get(), now);
        } else {
          effect.get().by(this);
        }
        continue;
      }
      OptionalLong wakesAt = core.wakesAt();
      if (wakesAt.isEmpty() || wakesAt.getAsLong() > until) {
        now = until;
        return;
      }
      if (wakesAt.getAsLong() <= now) {
        throw new AssertionError("the driver would spin at " + now);
      }
      now = wakesAt.getAsLong();
    }
  }

  @Override
  public void pause(Effect.Pause effect) {
    client.paused.addAll(effect.partitions());
    core.done(effect, now);
  }

  @Override
  public void resume(Effect.Resume effect) {
    effect.partitions().forEach(client.paused::remove);
    core.done(effect, now);
  }

  @Override
  public void position(Effect.Position effect) {
    Map<Partition, Long> told = new LinkedHashMap<>();
    effect.partitions().forEach(partition -> told.put(partition, client.position.get(partition)));
    afterPositions.run();
    core.done(effect, now, told);
  }

  @Override
  public void commit(Effect.Commit effect) {
    for (Partition partition : effect.partitions()) {
      if (client.position.get(partition) != Offsets.NONE) {
        client.committed.put(partition, client.position.get(partition));
      }
    }
    core.done(effect, now);
  }

  @Override
  public void committed(Effect.Committed effect) {
    Map<Partition, Long> told = new LinkedHashMap<>();
    effect.partitions().stream()
        .filter(partition -> !unstable.contains(partition))
        .forEach(
            partition ->
                told.put(partition, client.committed.getOrDefault(partition, Offsets.NONE)));
    core.done(effect, now, told);
  }

  @Override
  public void forget(Effect.Forget effect) {
    core.done(effect, now);
  }

  @Override
  public void seek(Effect.Seek effect) {
    effect.offsets().forEach(client::seek);
    core.done(effect, now, effect.partitions());
  }

  @Override
  public void begin(Effect.Begin effect) {
    effect.partitions().forEach(partition -> client.begin(partition, effect.start()));
    core.done(effect, now, effect.partitions());
  }

  @Override
  public void sendAcks(Effect.SendAcks effect) {
    effect
        .acks()
        .forEach((partition, ack) -> acks.add(new Acked(partition, ack.epoch(), ack.offset())));
    core.done(effect, now);
  }
}
