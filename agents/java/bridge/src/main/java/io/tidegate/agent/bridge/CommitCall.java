package io.tidegate.agent.bridge;

import java.util.Map;

/** One sending of offsets to the brokers. */
public interface CommitCall {
  /** Those that may be sent. */
  Map<?, ?> offsets();

  /**
   * It was sent, or it was not.
   *
   * @param answer the client's future of the answer; null: there is none, the call is over
   */
  void sent(Object answer);

  /** One of which nothing is left, where the client must not be called with nothing. */
  interface Nothing extends CommitCall {}
}
