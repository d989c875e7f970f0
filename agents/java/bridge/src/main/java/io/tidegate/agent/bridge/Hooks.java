package io.tidegate.agent.bridge;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.function.Predicate;

/**
 * What instrumented methods call. Nothing that is wrong with the agent is thrown from here into
 * Kafka's code: the client does what it would do without, but hands out nothing of a partition of
 * which it cannot be told whether it is withheld. That is said once.
 */
public final class Hooks {
  private Hooks() {}

  /** See {@link Member#isWithheld}. */
  public static boolean isWithheld(Member member, Object partition) {
    try {
      return member.isWithheld(partition);
    } catch (Throwable trouble) {
      Troubles.tell("isWithheld", trouble);
      // Where it cannot be told, nothing is handed out: an ack may have promised that.
      return true;
    }
  }

  /** See {@link Member#removeWithheld}. */
  public static void removeWithheld(Member member, List<?> partitions) {
    try {
      member.removeWithheld(partitions);
    } catch (Throwable trouble) {
      Troubles.tell("removeWithheld", trouble);
    }
  }

  /** See {@link Member#reassigned}. */
  public static void reassigned(Member member, boolean isByUser) {
    try {
      member.reassigned(isByUser);
    } catch (Throwable trouble) {
      Troubles.tell("reassigned", trouble);
    }
  }

  /** See {@link Member#placed}. */
  public static Predicate<?> placed(Member member, Predicate<?> included) {
    try {
      return member.placed(included);
    } catch (Throwable trouble) {
      Troubles.tell("placed", trouble);
      return included;
    }
  }

  /** See {@link Member#mustWait}. */
  public static boolean mustWait(Member member) {
    try {
      return member.mustWait();
    } catch (Throwable trouble) {
      Troubles.tell("mustWait", trouble);
      return false;
    }
  }

  /** See {@link Member#pollBegins}. */
  public static PollCall pollBegins(Member member, Duration timeout) {
    try {
      return member.pollBegins(timeout);
    } catch (Throwable trouble) {
      Troubles.tell("pollBegins", trouble);
      return null;
    }
  }

  /** See {@link PollCall#returned}. */
  public static Object returned(PollCall call, Object records) {
    try {
      return call.returned(records);
    } catch (Throwable trouble) {
      Troubles.tell("returned", trouble);
      return records;
    }
  }

  /** See {@link PollCall#goesOn}. */
  public static boolean goesOn(PollCall call) {
    try {
      return call.goesOn();
    } catch (Throwable trouble) {
      Troubles.tell("goesOn", trouble);
      return false;
    }
  }

  /** See {@link Member#sought}. */
  public static void sought(Member member, Object partitions) {
    try {
      member.sought(partitions);
    } catch (Throwable trouble) {
      Troubles.tell("sought", trouble);
    }
  }

  /** Offsets that a consumer of the classic protocol sends. */
  public static CommitCall commitBegins(Object subscriptions, Map<?, ?> offsets) {
    try {
      Member member =
          subscriptions instanceof Governed ? ((Governed) subscriptions).tidegate$member() : null;
      return member == null || offsets == null ? null : member.commitBegins(offsets);
    } catch (Throwable trouble) {
      Troubles.tell("commitBegins", trouble);
      return null;
    }
  }

  /** Offsets that a consumer of the newer protocol sends. */
  public static CommitCall commitBeginsBy(Object manager, Map<?, ?> offsets) {
    return manager instanceof Subscribed
        ? commitBegins(((Subscribed) manager).tidegate$subscriptions(), offsets)
        : null;
  }

  /** See {@link Attacher#transactionBegins}. */
  public static CommitCall transactionBegins(
      Class<?> producer, Map<?, ?> offsets, Object groupMetadata) {
    try {
      Attacher attacher = Runtimes.of(producer);
      return attacher == null ? null : attacher.transactionBegins(offsets, groupMetadata);
    } catch (Throwable trouble) {
      Troubles.tell("transactionBegins", trouble);
      return null;
    }
  }

  /** See {@link CommitCall#sent}. */
  public static void sent(CommitCall call, Object answer) {
    try {
      call.sent(answer);
    } catch (Throwable trouble) {
      Troubles.tell("sent", trouble);
    }
  }

  /** See {@link Attacher#attach}. What is wrong with the application's own words is thrown. */
  public static void created(Class<?> type, Object consumer, Object config) {
    RuntimeException refusal = null;
    try {
      Attacher attacher = Runtimes.of(type);
      refusal = attacher == null ? null : attacher.attach(consumer, config);
    } catch (Throwable trouble) {
      Troubles.tell("created", trouble);
    }
    if (refusal != null) {
      throw refusal;
    }
  }

  /**
   * A call of close has ended.
   *
   * @param thrown null: nothing was
   */
  public static void closed(Member member, Throwable thrown) {
    // Another thread has it, or the time-out is negative: then it is not closed.
    if (thrown instanceof java.util.ConcurrentModificationException
        || thrown instanceof IllegalArgumentException) {
      return;
    }
    try {
      member.closed();
    } catch (Throwable trouble) {
      Troubles.tell("closed", trouble);
    }
  }
}
