package io.tidegate.agent.instrument.advice;

import io.tidegate.agent.bridge.Hooks;
import io.tidegate.agent.bridge.Member;
import java.util.List;
import java.util.function.Predicate;
import net.bytebuddy.asm.Advice;

/** Into {@code SubscriptionState}: what may be fetched and handed out, and what is assigned. */
public final class SubscriptionAdvice {
  private SubscriptionAdvice() {}

  /** {@code isPaused}: what is withheld counts as paused, so that what is buffered is kept. */
  public static final class Paused {
    private Paused() {}

    @Advice.OnMethodExit
    static void exit(
        @Advice.FieldValue(Names.MEMBER) Member member,
        @Advice.Argument(0) Object partition,
        @Advice.Return(readOnly = false) boolean isPaused) {
      if (member != null && !isPaused) {
        isPaused = Hooks.isWithheld(member, partition);
      }
    }
  }

  /** {@code isFetchable}. */
  public static final class Fetchable {
    private Fetchable() {}

    @Advice.OnMethodExit
    static void exit(
        @Advice.FieldValue(Names.MEMBER) Member member,
        @Advice.Argument(0) Object partition,
        @Advice.Return(readOnly = false) boolean isFetchable) {
      if (member != null && isFetchable) {
        isFetchable = !Hooks.isWithheld(member, partition);
      }
    }
  }

  /** {@code fetchablePartitions}. */
  public static final class FetchableOnes {
    private FetchableOnes() {}

    @Advice.OnMethodExit
    static void exit(
        @Advice.FieldValue(Names.MEMBER) Member member, @Advice.Return List<?> partitions) {
      if (member != null) {
        Hooks.removeWithheld(member, partitions);
      }
    }
  }

  /** {@code assignFromSubscribed} and {@code unsubscribe}. */
  public static final class Reassigned {
    private Reassigned() {}

    @Advice.OnMethodExit
    static void exit(@Advice.FieldValue(Names.MEMBER) Member member) {
      if (member != null) {
        Hooks.reassigned(member, false);
      }
    }
  }

  /** {@code assignFromUser}. */
  public static final class AssignedByUser {
    private AssignedByUser() {}

    @Advice.OnMethodExit
    static void exit(@Advice.FieldValue(Names.MEMBER) Member member) {
      if (member != null) {
        Hooks.reassigned(member, true);
      }
    }
  }

  /** {@code resetInitializingPositions()}, up to 3.9. */
  public static final class ResetAll {
    private ResetAll() {}

    @Advice.OnMethodEnter(skipOn = Advice.OnNonDefaultValue.class)
    static boolean enter(@Advice.FieldValue(Names.MEMBER) Member member) {
      return member != null && Hooks.mustWait(member);
    }
  }

  /** {@code resetInitializingPositions(Predicate)}, from 4.0 on. */
  public static final class ResetSome {
    private ResetSome() {}

    @Advice.OnMethodEnter
    static void enter(
        @Advice.FieldValue(Names.MEMBER) Member member,
        @Advice.Argument(value = 0, readOnly = false) Predicate<?> included) {
      if (member != null) {
        included = Hooks.placed(member, included);
      }
    }
  }
}
