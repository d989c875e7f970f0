package io.tidegate.agent.instrument.advice;

import io.tidegate.agent.bridge.CommitCall;
import io.tidegate.agent.bridge.Hooks;
import java.util.Map;
import net.bytebuddy.asm.Advice;

/** Where all commits pass through: offsets that must not be committed are taken out. */
public final class CommitAdvice {
  private CommitAdvice() {}

  /** The classic protocol: {@code ConsumerCoordinator.sendOffsetCommitRequest(Map)}. */
  public static final class Classic {
    private Classic() {}

    @Advice.OnMethodEnter
    static CommitCall enter(
        @Advice.FieldValue("subscriptions") Object subscriptions,
        @Advice.Argument(value = 0, readOnly = false) Map<?, ?> offsets) {
      CommitCall call = Hooks.commitBegins(subscriptions, offsets);
      if (call != null) {
        offsets = call.offsets();
      }
      return call;
    }

    @Advice.OnMethodExit(onThrowable = Throwable.class)
    static void exit(@Advice.Enter CommitCall call, @Advice.Return Object answer) {
      if (call != null) {
        Hooks.sent(call, answer);
      }
    }
  }

  /** The newer one: {@code CommitRequestManager$OffsetCommitRequestState.toUnsentRequest()}. */
  public static final class Newer {
    private Newer() {}

    @Advice.OnMethodEnter
    static CommitCall enter(
        @Advice.FieldValue("this$0") Object manager,
        @Advice.FieldValue(value = "offsets", readOnly = false) Map<?, ?> offsets) {
      CommitCall call = Hooks.commitBeginsBy(manager, offsets);
      if (call != null) {
        offsets = call.offsets();
      }
      return call;
    }

    @Advice.OnMethodExit(onThrowable = Throwable.class)
    static void exit(@Advice.Enter CommitCall call, @Advice.Return Object answer) {
      if (call != null) {
        Hooks.sent(call, answer);
      }
    }
  }

  /**
   * {@code KafkaProducer.sendOffsetsToTransaction(Map, ConsumerGroupMetadata)}, which the other
   * overload calls. It returns when the broker has answered.
   */
  public static final class Transactional {
    private Transactional() {}

    @Advice.OnMethodEnter(skipOn = CommitCall.Nothing.class)
    static CommitCall enter(
        @Advice.Origin Class<?> type,
        @Advice.Argument(value = 0, readOnly = false) Map<?, ?> offsets,
        @Advice.Argument(1) Object groupMetadata) {
      CommitCall call = Hooks.transactionBegins(type, offsets, groupMetadata);
      if (call != null) {
        offsets = call.offsets();
      }
      return call;
    }

    @Advice.OnMethodExit(onThrowable = Throwable.class)
    static void exit(@Advice.Enter CommitCall call) {
      if (call != null) {
        Hooks.sent(call, null);
      }
    }
  }
}
