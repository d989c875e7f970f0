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
  Set<Partition> unstable = new HashSet<>();

  /** What happens whenever the client has been asked for positions. */
  Runnable afterPositions = () -> {};

  private final List<SimulatedClient.Delivered> takenOff = new ArrayList<>();
  private final Map<Partition, Long> sent = new HashMap<>();
  private Map<Partition, Long> committing = Map.of();
  private long call;
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

  /** Those of the application's offsets that are not dropped. */
  Map<Partition, Long> passing(Map<Partition, Long> offsets) {
    Map<Partition, Long> passing = new LinkedHashMap<>(offsets);
    passing
        .keySet()
        .removeAll(
            core.withholding()
                .dropped(offsets, asked -> client.position.getOrDefault(asked, Offsets.NONE)));
    return passing;
  }

  /** Whether it reached the broker. */
  boolean commit(Partition partition, long offset) {
    return !commit(Map.of(partition, offset)).isEmpty();
  }

  /** Those that reached the broker. */
  Map<Partition, Long> commit(Map<Partition, Long> offsets) {
    Map<Partition, Long> passing = passing(offsets);
    client.committed.putAll(passing);
    return passing;
  }

  /** The application stores these for its client's next commit. */
  Map<Partition, Long> store(Map<Partition, Long> offsets) {
    Map<Partition, Long> passing = passing(offsets);
    client.stored.putAll(passing);
    return passing;
  }

  /** A commit call of the application's goes to the client, and takes its time. */
  Map<Partition, Long> beginCommit(Map<Partition, Long> offsets) {
    committing = passing(offsets);
    call = core.withholding().commitBegins();
    return committing;
  }

  void endCommit() {
    client.committed.putAll(committing);
    core.withholding().commitEnds(call);
  }

  /** Within a transaction: until it ends, the brokers do not tell what is committed. */
  Map<Partition, Long> sendOffsets(Map<Partition, Long> offsets) {
    Map<Partition, Long> passing = passing(offsets);
    sent.putAll(passing);
    unstable.addAll(passing.keySet());
    return passing;
  }

  void endTransaction(boolean isCommitted) {
    if (isCommitted) {
      client.committed.putAll(sent);
    }
    unstable.removeAll(sent.keySet());
    sent.clear();
  }

  void appPause(List<Partition> partitions) {
    client.paused.addAll(partitions);
    core.appPaused(partitions);
  }

  void appResume(List<Partition> partitions) {
    core.appResumed(partitions).forEach(client.paused::remove);
  }

  void appSeek(Map<Partition, Long> offsets) {
    offsets.forEach(
        (partition, offset) -> {
          client.seek(partition, offset);
          core.appSought(partition);
        });
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
    client.commitStored(effect.partitions());
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
    client.forget(effect.partitions());
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
