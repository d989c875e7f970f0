package driven;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A consumer with a plain poll loop, in a thread of its own.
 *
 * <p>Its commands: {@code pause} and {@code resume} ({@code partitions}), {@code seek} ({@code offsets}), {@code commit}
 * ({@code how}, {@code offsets}), {@code assignment}, {@code paused}, {@code positions} ({@code partitions}), {@code
 * committed} ({@code partitions}, {@code timeout_ms}), {@code member_id}, {@code subscribe} ({@code topics}) and {@code
 * unsubscribe} are carried out between two polls; {@code wakeup}, {@code keep}, {@code in_hand} and {@code let_go} at
 * once. From {@code keep} on the next batch stays in hand,
 * worked on and not committed, until {@code let_go}; {@code in_hand} says whether there is one.
 */
public final class DrivenConsumer implements Member, Runnable, ConsumerRebalanceListener {
  private static final long CLOSE_SECONDS = 40;
  private static final long SHORT_POLL_MILLIS = 1_000;

  private final Job job;
  private final Out out;
  private final Thread thread;
  private final ConcurrentLinkedQueue<FutureTask<Object>> asked = new ConcurrentLinkedQueue<>();
  private final CountDownLatch stopping = new CountDownLatch(1);
  private volatile CountDownLatch kept;
  private volatile boolean inHand;
  private volatile KafkaConsumer<byte[], byte[]> consumer;
  private volatile boolean polling;
  private Committing committing;

  private DrivenConsumer(Job job, Out out) {
    this.job = job;
    this.out = out;
    thread = new Thread(this, job.name);
    thread.setDaemon(true);
  }

  /** A consumer in a thread that runs. */
  public static Member start(Job job, Out out) {
    DrivenConsumer started = new DrivenConsumer(job, out);
    started.thread.start();
    return started;
  }

  @Override
  public Object ask(String what, JsonNode command) throws Exception {
    switch (what) {
      case "wakeup":
        consumer.wakeup();
        return null;
      case "keep":
        kept = new CountDownLatch(1);
        return null;
      case "in_hand":
        return inHand;
      case "let_go":
        CountDownLatch latch = kept;
        kept = null;
        latch.countDown();
        return null;
      default:
        FutureTask<Object> question = new FutureTask<>(() -> carryOut(what, command));
        asked.add(question);
        if (!thread.isAlive()) {
          throw new IllegalStateException(job.name + " has ended");
        }
        return question.get(CLOSE_SECONDS, TimeUnit.SECONDS);
    }
  }

  @Override
  public void stop() throws InterruptedException {
    stopping.countDown();
    if (polling && job.pollMillis > SHORT_POLL_MILLIS) { // others end by themselves
      consumer.wakeup();
    }
    thread.join(TimeUnit.SECONDS.toMillis(CLOSE_SECONDS));
    if (thread.isAlive()) {
      throw new IllegalStateException(job.name + " does not end");
    }
  }

  @Override
  public void run() {
    try (KafkaConsumer<byte[], byte[]> made =
            new KafkaConsumer<>(job.config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        Committing commits = new Committing(job, made, out)) {
      consumer = made;
      committing = commits;
      if (job.partitions.isEmpty()) {
        made.subscribe(job.topics, this);
      } else {
        made.assign(job.partitions);
      }
      live();
    } catch (Throwable died) { // linkage errors included
      died.printStackTrace();
      out.tell("died", job.name, died.toString());
    } finally {
      asked.forEach(question -> question.cancel(false));
      out.tell("closed", job.name);
    }
  }

  private void live() throws InterruptedException {
    while (stopping.getCount() > 0) {
      for (FutureTask<Object> question = asked.poll(); question != null; question = asked.poll()) {
        question.run();
      }
      ConsumerRecords<byte[], byte[]> records;
      polling = true;
      try {
        records = poll();
      } catch (WakeupException woken) {
        out.tell("woken", job.name);
        continue;
      } finally {
        polling = false;
      }
      if (!records.isEmpty()) {
        out.records(job.name, Out.now(), records);
        committing.begin(job.commit);
        work();
        committing.commit(job.commit, Committing.after(records));
      }
    }
  }

  @SuppressWarnings("deprecation")
  private ConsumerRecords<byte[], byte[]> poll() {
    return job.pollsByNumber ? consumer.poll(job.pollMillis) : consumer.poll(Duration.ofMillis(job.pollMillis));
  }

  private void work() throws InterruptedException {
    stopping.await(job.workMillis, TimeUnit.MILLISECONDS);
    CountDownLatch latch = kept;
    if (latch != null) {
      inHand = true;
      latch.await();
      inHand = false;
    }
  }

  private Object carryOut(String what, JsonNode command) {
    switch (what) {
      case "pause":
        consumer.pause(Job.partitions(command.get("partitions")));
        return null;
      case "resume":
        consumer.resume(Job.partitions(command.get("partitions")));
        return null;
      case "seek":
        offsets(command).forEach(consumer::seek);
        return null;
      case "commit":
        String how = command.get("how").asText();
        committing.begin(how);
        committing.commit(how, offsets(command));
        return null;
      case "assignment":
        return Job.rows(consumer.assignment());
      case "paused":
        return Job.rows(consumer.paused());
      case "positions":
        return positions(consumer, Job.partitions(command.get("partitions")));
      case "committed":
        Duration timeout = Duration.ofMillis(command.get("timeout_ms").asLong());
        return Job.rows(consumer.committed(new HashSet<>(Job.partitions(command.get("partitions"))), timeout).keySet());
      case "member_id":
        return consumer.groupMetadata().memberId();
      case "subscribe":
        Collection<String> topics = new HashSet<>();
        command.get("topics").forEach(topic -> topics.add(topic.asText()));
        consumer.subscribe(topics, this);
        return null;
      case "unsubscribe":
        consumer.unsubscribe();
        return null;
      default:
        throw new IllegalArgumentException(what);
    }
  }

  private static Map<TopicPartition, OffsetAndMetadata> offsets(JsonNode command) {
    Map<TopicPartition, OffsetAndMetadata> found = new HashMap<>();
    command.path("offsets").forEach(
        row -> found.put(
            new TopicPartition(row.get(0).asText(), row.get(1).asInt()), new OffsetAndMetadata(row.get(2).asLong())));
    return found;
  }

  private static List<Object> positions(Consumer<?, ?> consumer, List<TopicPartition> partitions) {
    List<Object> rows = new ArrayList<>();
    partitions.forEach(
        partition -> rows.add(new Object[] {partition.topic(), partition.partition(), consumer.position(partition)}));
    return rows;
  }

  @Override
  public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
    out.partitions("assigned", job.name, partitions);
  }

  @Override
  public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
    out.partitions("revoked", job.name, partitions);
  }

  @Override
  public void onPartitionsLost(Collection<TopicPartition> partitions) {
    out.partitions("lost", job.name, partitions);
  }
}
