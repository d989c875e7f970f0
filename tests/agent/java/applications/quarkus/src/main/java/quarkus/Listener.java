package quarkus;

import channel.Records;
import com.fasterxml.jackson.databind.JsonNode;
import driven.Job;
import driven.Member;
import driven.Out;
import io.quarkus.runtime.Quarkus;

/**
 * The application that Quarkus starts, with a channel of its Kafka connector: a process starts it once. How it commits is
 * the channel's {@code commit-strategy}: {@code throttled}, {@code latest}, or {@code ignore}, with which the client
 * commits.
 */
final class Listener implements Member {
  private static final String CHANNEL = "mp.messaging.incoming.records.";

  private final Thread running;

  private Listener(Thread running) {
    this.running = running;
  }

  static Member start(Job job, Out out) {
    Records.goTo(job, out);
    // As a user gives them with -D; the other settings of the channel are in application.properties.
    System.setProperty(CHANNEL + "topics", String.join(",", job.topics));
    System.setProperty(CHANNEL + "commit-strategy", job.commit);
    job.config.forEach((name, value) -> System.setProperty(CHANNEL + name, value.toString()));
    System.setProperty(CHANNEL + "enable.auto.commit", String.valueOf(job.commit.equals("ignore")));
    // Without a handler it ends the process, too.
    Thread running = new Thread(() -> Quarkus.run(null, (code, failure) -> {}), "quarkus");
    running.start();
    return new Listener(running);
  }

  @Override
  public Object ask(String what, JsonNode command) {
    throw new IllegalArgumentException(what);
  }

  @Override
  public void stop() throws InterruptedException {
    Quarkus.asyncExit();
    running.join();
  }
}
