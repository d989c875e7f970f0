package io.tidegate.agent.runtime;

import io.tidegate.agent.core.Start;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;
import java.util.function.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.errors.TopicAuthorizationException;

/** A client that does as a test says, on a clock that only the test and its own waiting move. */
final class ScriptedClient implements GovernedClient {
  final Set<TopicPartition> assigned = new HashSet<>();
  final Set<TopicPartition> initializing = new HashSet<>();
  final Map<TopicPartition, Long> committed = new HashMap<>();
  final Map<TopicPartition, Long> positions = new HashMap<>();
  final List<String> done = new ArrayList<>();

  /** Partitions of which the broker does not tell the committed offset: a transaction is open. */
  final Set<TopicPartition> unstable = new HashSet<>();

  /** Partitions of topics that the principal may not describe. */
  final Set<TopicPartition> forbidden = new HashSet<>();

  /** What the next question for committed offsets throws. */
  RuntimeException trouble;

  /** How long (nanoseconds) the broker takes to tell committed offsets. */
  long answersAfter;

  /**
   * Whether an answer for which nobody waits any more is kept for the next question about the same
   * partitions, as the classic protocol's client keeps it; the newer one's drops it.
   */
  boolean keepsAnswers = true;

  /** Whether it tells of a commit in a later poll: the next one ends before there is an answer. */
  boolean tellsOfCommitsLater;

  private final List<Runnable> untold = new ArrayList<>();
  private Pending pending;

  Optional<String> member = Optional.of("member-1");
  boolean hasResetRule = true;
  boolean isOfAnotherBuild;
  boolean isByUser;
  long now;

  @Override
  public Set<TopicPartition> assigned() {
    return new HashSet<>(assigned);
  }

  @Override
  public void assignedByUser(boolean byUser) {
    isByUser = byUser;
  }

  @Override
  public Set<TopicPartition> initializing() {
    return new HashSet<>(initializing);
  }

  @Override
  public boolean hasResetRule() {
    return hasResetRule;
  }

  @Override
  public void begin(TopicPartition partition, Start start) {
    done.add("begin " + partition + " " + start);
  }

  @Override
  public OptionalLong position(TopicPartition partition) {
    Long position = positions.get(partition);
    return position == null ? OptionalLong.empty() : OptionalLong.of(position);
  }

  @Override
  public Map<TopicPartition, Long> committed(Set<TopicPartition> partitions, Duration timeout) {
    done.add("ask for " + partitions);
    if (trouble != null) {
      RuntimeException thrown = trouble;
      trouble = null;
      throw thrown;
    }
    if (partitions.stream().anyMatch(forbidden::contains)) {
      throw new TopicAuthorizationException("Not authorized to access topics");
    }
    if (partitions.stream().anyMatch(unstable::contains)) {
      now += timeout.toNanos();
      throw new TimeoutException("a transaction is open");
    }
    boolean isLate = pending != null && !keepsAnswers && pending.answeredAt < now;
    if (pending == null || isLate || !pending.answer.keySet().equals(partitions)) {
      pending = new Pending(partitions);
    }
    if (pending.answeredAt > now + timeout.toNanos()) {
      now += timeout.toNanos();
      throw new TimeoutException("no answer yet");
    }
    now = Math.max(now, pending.answeredAt);
    Map<TopicPartition, Long> found = pending.answer;
    pending = null;
    return found;
  }

  @Override
  public void forgetAnswers() {
    if (keepsAnswers) {
      pending = null;
    }
  }

  /** A question that was sent, and what the broker says to it. */
  private final class Pending {
    private final Map<TopicPartition, Long> answer = new LinkedHashMap<>();
    private final long answeredAt = now + answersAfter;

    private Pending(Set<TopicPartition> partitions) {
      partitions.forEach(each -> answer.put(each, committed.get(each)));
    }
  }

  @Override
  public void outdated(Set<TopicPartition> partitions) {
    done.add("outdated " + partitions);
    if (isOfAnotherBuild) {
      throw new IllegalStateException("built otherwise");
    }
  }

  @Override
  public void seek(TopicPartition partition, long offset) {
    if (!assigned.contains(partition)) {
      throw new IllegalStateException("No current assignment for partition " + partition);
    }
    done.add("seek " + partition + " to " + offset);
    positions.put(partition, offset);
  }

  @Override
  public boolean isSeeking() {
    return false;
  }

  @Override
  public void commit(Map<TopicPartition, Long> offsets, Consumer<Boolean> whenDone) {
    done.add("commit " + offsets);
    committed.putAll(offsets);
    if (tellsOfCommitsLater) {
      untold.add(() -> untold.add(() -> whenDone.accept(true)));
    } else {
      whenDone.accept(true);
    }
  }

  /** The application has polled, and got records. */
  void polled() {
    List<Runnable> due = new ArrayList<>(untold);
    untold.clear();
    due.forEach(Runnable::run);
  }

  @Override
  public Optional<String> memberId() {
    return isByUser ? Optional.of("") : member;
  }

  @Override
  public void wakeup() {
    done.add("wake up");
  }

  /** Records of one partition, as a poll returns them. */
  static ConsumerRecords<String, String> records(TopicPartition of, long... offsets) {
    List<ConsumerRecord<String, String>> batch = new ArrayList<>();
    for (long offset : offsets) {
      batch.add(new ConsumerRecord<>(of.topic(), of.partition(), offset, "key", "value"));
    }
    return new ConsumerRecords<>(Map.of(of, batch));
  }
}
