package channel;

import driven.Job;
import driven.Out;
import io.smallrye.reactive.messaging.annotations.Blocking;
import jakarta.enterprise.context.ApplicationScoped;
import java.util.List;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.eclipse.microprofile.reactive.messaging.Incoming;

/** What the channel's records are given to: each is acknowledged once the method has returned. */
@ApplicationScoped
public class Records {
  private static volatile Job job;
  private static volatile Out out;

  public static void goTo(Job newJob, Out newOut) {
    job = newJob;
    out = newOut;
  }

  /** On a worker thread, one after the other, as is usual in Quarkus. */
  @Incoming("records")
  @Blocking
  public void given(ConsumerRecord<byte[], byte[]> record) throws InterruptedException {
    out.records(job.name, Out.now(), List.of(record));
    Thread.sleep(job.workMillis);
  }
}
