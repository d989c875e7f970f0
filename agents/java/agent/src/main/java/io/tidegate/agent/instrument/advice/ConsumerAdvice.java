package io.tidegate.agent.instrument.advice;

import io.tidegate.agent.bridge.Hooks;
import io.tidegate.agent.bridge.Member;
import io.tidegate.agent.bridge.PollCall;
import java.time.Duration;
import net.bytebuddy.asm.Advice;
import net.bytebuddy.implementation.bytecode.assign.Assigner;

/** Into {@code KafkaConsumer}: what the application does with it. */
public final class ConsumerAdvice {
  private ConsumerAdvice() {}

  /** The constructor that all others call. The class is the client's own, not one derived. */
  public static final class Created {
    private Created() {}

    @Advice.OnMethodExit
    static void exit(
        @Advice.Origin Class<?> type,
        @Advice.This(typing = Assigner.Typing.DYNAMIC) Object consumer,
        @Advice.Argument(0) Object config) {
      Hooks.created(type, consumer, config);
    }
  }

  /** {@code poll(Duration)}: in slices, with the member's turn before each. */
  public static final class Poll {
    private Poll() {}

    @Advice.OnMethodEnter
    static PollCall enter(
        @Advice.FieldValue(Names.MEMBER) Member member,
        @Advice.Argument(value = 0, readOnly = false) Duration timeout) {
      PollCall call = member == null ? null : Hooks.pollBegins(member, timeout);
      if (call != null) {
        timeout = call.slice();
      }
      return call;
    }

    @SuppressWarnings("UnusedVariable") // The repeated method reads it.
    @Advice.OnMethodExit(repeatOn = Advice.OnNonDefaultValue.class, backupArguments = false)
    static boolean exit(
        @Advice.Enter PollCall call,
        @Advice.Argument(value = 0, readOnly = false) Duration timeout,
        @Advice.Return(readOnly = false, typing = Assigner.Typing.DYNAMIC) Object records) {
      if (call == null) {
        return false;
      }
      records = Hooks.returned(call, records);
      if (!Hooks.goesOn(call)) {
        return false;
      }
      timeout = call.slice();
      return true;
    }
  }

  /** {@code poll(long)}, up to 3.9. */
  public static final class PollMillis {
    private PollMillis() {}

    @Advice.OnMethodEnter
    static PollCall enter(
        @Advice.FieldValue(Names.MEMBER) Member member,
        @Advice.Argument(value = 0, readOnly = false) long timeout) {
      PollCall call =
          member == null || timeout < 0
              ? null
              : Hooks.pollBegins(member, Duration.ofMillis(timeout));
      if (call != null) {
        timeout = call.slice().toMillis();
      }
      return call;
    }

    @SuppressWarnings("UnusedVariable") // The repeated method reads it.
    @Advice.OnMethodExit(repeatOn = Advice.OnNonDefaultValue.class, backupArguments = false)
    static boolean exit(
        @Advice.Enter PollCall call,
        @Advice.Argument(value = 0, readOnly = false) long timeout,
        @Advice.Return(readOnly = false, typing = Assigner.Typing.DYNAMIC) Object records) {
      if (call == null) {
        return false;
      }
      records = Hooks.returned(call, records);
      if (!Hooks.goesOn(call)) {
        return false;
      }
      timeout = call.slice().toMillis();
      return true;
    }
  }

  /** {@code seek}, {@code seekToBeginning} and {@code seekToEnd}. */
  public static final class Sought {
    private Sought() {}

    @Advice.OnMethodExit
    static void exit(
        @Advice.FieldValue(Names.MEMBER) Member member, @Advice.Argument(0) Object partitions) {
      if (member != null) {
        Hooks.sought(member, partitions);
      }
    }
  }

  /** {@code close}, by whichever signature. */
  public static final class Closed {
    private Closed() {}

    @Advice.OnMethodExit(onThrowable = Throwable.class)
    static void exit(
        @Advice.FieldValue(Names.MEMBER) Member member, @Advice.Thrown Throwable thrown) {
      if (member != null) {
        Hooks.closed(member, thrown);
      }
    }
  }
}
