package io.tidegate.agent.runtime;

import io.tidegate.agent.core.ControlReading;
import io.tidegate.agent.core.Effect;
import io.tidegate.agent.core.Known;
import io.tidegate.agent.core.Partition;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.apache.kafka.common.errors.InterruptException;

/**
 * A {@link Link}: a reader and a keeper of the control topic, and a writer of acks, each a thread
 * with clients of its own beside the application's. Threads start with the first question.
 */
final class ControlLink implements Link {
  /** After how long something is tried again that failed. */
  static final long RETRY_NANOS = TimeUnit.MILLISECONDS.toNanos(500);

  /** The same where it keeps failing: making clients costs something. */
  private static final long LONGEST_RETRY_NANOS = TimeUnit.SECONDS.toNanos(10);

  private final Clients clients;
  private final ClassLoader loader;
  private final Troubles troubles;
  private final ControlState state;
  private final ControlReader reader;
  private final ControlKeeper keeper;
  private final AckWriter acks;
  private final List<Thread> threads = new ArrayList<>();
  private Topics topics;

  /** A part of the link's work. */
  private interface Work {
    void run() throws InterruptedException;
  }

  ControlLink(
      Clients clients,
      ClassLoader loader,
      String controlTopic,
      String ackTopic,
      AgentLog log,
      Ticks ticks) {
    this.clients = clients;
    this.loader = loader;
    troubles = new Troubles(log);
    state = new ControlState(ticks, troubles);
    reader = new ControlReader(state, clients, controlTopic, troubles);
    keeper =
        new ControlKeeper(
            state, ticks, controlTopic, ackTopic, troubles, ControlReading.REBUILT_NANOS);
    acks =
        new AckWriter(
            clients,
            this::topics,
            ackTopic,
            () -> known().generation(),
            troubles,
            ticks,
            state::isStopped);
  }

  @Override
  public Known known() {
    return state.known();
  }

  @Override
  public long ask(Collection<String> topicNames) {
    long ticket = state.ask(topicNames);
    start();
    return ticket;
  }

  @Override
  public void listen(Runnable changed) {
    state.listen(changed);
  }

  @Override
  public void unlisten(Runnable changed) {
    state.unlisten(changed);
  }

  @Override
  public void sendAcks(
      String group,
      String member,
      Map<Partition, Effect.AckWord> words,
      long generation,
      Consumer<Boolean> done) {
    if (words.isEmpty()) {
      done.accept(true);
    } else if (state.isStopped() || generation != known().generation()) {
      done.accept(false);
    } else if (generation == 0) {
      // There has been no control topic, so nobody reads acks; once there is one, each partition is
      // acked again. Waiting for an ack topic, these would come after those of later owners.
      done.accept(true);
    } else {
      acks.send(group, member, words, generation, done);
      start();
    }
  }

  /** End the threads, without waiting for that; what was not written is not. */
  void close() {
    synchronized (threads) {
      state.stop();
      threads.forEach(Thread::interrupt);
    }
  }

  /** The threads, for tests: whether they end. */
  List<Thread> threads() {
    synchronized (threads) {
      return new ArrayList<>(threads);
    }
  }

  private void start() {
    synchronized (threads) {
      if (!threads.isEmpty() || state.isStopped()) {
        return;
      }
      threads.add(AgentThread.of("reader", loader, () -> guarded(reader::read)));
      threads.add(AgentThread.of("keeper", loader, this::keep));
      threads.add(AgentThread.of("acks", loader, acks::write));
      threads.forEach(Thread::start);
    }
  }

  private void keep() {
    guarded(() -> keeper.keep(topics()));
    synchronized (this) {
      if (topics != null) {
        topics.close();
      }
    }
  }

  private synchronized Topics topics() {
    if (topics == null) {
      topics = clients.topics();
    }
    return topics;
  }

  private void guarded(Work work) {
    long retry = RETRY_NANOS;
    while (!state.isStopped()) {
      try {
        work.run();
        retry = RETRY_NANOS;
      } catch (InterruptedException | InterruptException interrupted) {
        // By close, or by somebody whose thread this is not.
        Thread.interrupted();
      } catch (RuntimeException | LinkageError failed) {
        if (!state.isStopped()) {
          troubles.say("clients", "the control topic cannot be read: " + Reason.of(failed));
        }
        pause(retry);
        retry = Math.min(2 * retry, LONGEST_RETRY_NANOS);
      }
    }
  }

  private void pause(long nanos) {
    try {
      state.rest(nanos);
    } catch (InterruptedException interrupted) {
      Thread.interrupted();
    }
  }
}
