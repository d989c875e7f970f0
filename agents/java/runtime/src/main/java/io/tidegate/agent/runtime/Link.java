package io.tidegate.agent.runtime;

import io.tidegate.agent.core.Effect;
import io.tidegate.agent.core.Known;
import io.tidegate.agent.core.Partition;
import java.util.Collection;
import java.util.Map;
import java.util.function.Consumer;

/**
 * The way to the control topic and the ack topic of one cluster. Thread-safe; nothing here blocks
 * for long or throws into the application, also where the cluster cannot be reached.
 */
interface Link {
  /** What has been read of the control topic; replaced as a whole, never changed. */
  Known known();

  /**
   * Have the control topic read to its end as it is now.
   *
   * @param topics those whose ids are to be known with the answer, as far as discovery has spoken
   *     of them and the brokers tell
   * @return the ticket that {@link Known#answered()} will reach. It may never do so, where the
   *     cluster is not reached again
   */
  long ask(Collection<String> topics);

  /**
   * Run this, on one of the link's threads, whenever {@link #known()} has changed. Two of them may
   * do so at once: what counts is what {@link #known()} says then.
   */
  void listen(Runnable changed);

  /** Run it no more. A call that is under way on another thread may still end after this. */
  void unlisten(Runnable changed);

  /**
   * Send acks. Those of an earlier control topic are not sent: their epochs say nothing any more.
   * Nor are those from before there was one, and these count as done.
   *
   * @param member the owner's member id in the group; empty for a consumer that has assigned its
   *     partitions itself
   * @param generation {@link Known#generation()} of the control topic that the epochs are of
   * @param done is called once, maybe on another thread, with whether the broker has them all
   */
  void sendAcks(
      String group,
      String member,
      Map<Partition, Effect.AckWord> acks,
      long generation,
      Consumer<Boolean> done);
}
