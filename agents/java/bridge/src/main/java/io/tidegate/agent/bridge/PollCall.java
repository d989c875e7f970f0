package io.tidegate.agent.bridge;

import java.time.Duration;

/** One poll of the application, which the client does in slices of its time-out. */
public interface PollCall {
  /** How long the client may wait for records this time. */
  Duration slice();

  /** What the application is given of what the client has returned. */
  Object returned(Object records);

  /** Whether the client is to poll once more, for there are no records and there is time left. */
  boolean goesOn();
}
