package driven;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Collection;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/**
 * What the process tells, a JSON object a line. {@code t}: seconds of the machine's monotonic clock, {@code m}: the
 * member, {@code e}: what it is.
 *
 * <ul>
 *   <li>{@code records}: {@code r} has rows of topic, partition and offset, as a poll or a listener was given them
 *   <li>{@code assigned}, {@code revoked}, {@code lost}: {@code p} has rows of topic and partition
 *   <li>{@code committed}: {@code o} has rows of topic, partition and offset; {@code error} is null or text
 *   <li>{@code ready}, {@code woken}, {@code closed}, {@code died}: {@code text} says more, if there is more to say
 * </ul>
 */
public final class Out {
  private static final ObjectMapper JSON = new ObjectMapper();

  private final PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), false);

  /** Something that needs no more than words. */
  public void tell(String event, String member, String... text) {
    say(event(event, member).put("text", String.join(" ", text)));
  }

  /** What was delivered, by the time when it was. */
  public void records(String member, double at, Iterable<? extends ConsumerRecord<?, ?>> records) {
    ObjectNode line = event("records", member).put("t", at);
    ArrayNode rows = line.putArray("r");
    for (ConsumerRecord<?, ?> record : records) {
      rows.addArray().add(record.topic()).add(record.partition()).add(record.offset());
    }
    say(line);
  }

  /** What a member was given or lost. */
  public void partitions(String event, String member, Collection<TopicPartition> partitions) {
    ObjectNode line = event(event, member);
    ArrayNode rows = line.putArray("p");
    partitions.forEach(partition -> rows.addArray().add(partition.topic()).add(partition.partition()));
    say(line);
  }

  /** What the client says of a commit. */
  public void committed(String member, Map<TopicPartition, OffsetAndMetadata> offsets, Exception error) {
    ObjectNode line = event("committed", member).put("error", error == null ? null : error.toString());
    ArrayNode rows = line.putArray("o");
    if (offsets != null) {
      offsets.forEach((partition, offset) ->
          rows.addArray().add(partition.topic()).add(partition.partition()).add(offset.offset()));
    }
    say(line);
  }

  void answer(long id, Object answer) {
    say(JSON.createObjectNode().put("id", id).set("answer", JSON.valueToTree(answer)));
  }

  void failed(long id, Throwable failed) {
    say(JSON.createObjectNode().put("id", id).put("error", failed.toString()));
  }

  private static ObjectNode event(String event, String member) {
    return JSON.createObjectNode().put("e", event).put("m", member).put("t", now());
  }

  /** Seconds by the clock that other processes of this machine read as well. */
  public static double now() {
    return System.nanoTime() / 1e9;
  }

  private void say(ObjectNode line) {
    byte[] bytes = (line + "\n").getBytes(StandardCharsets.UTF_8);
    synchronized (out) {
      out.write(bytes, 0, bytes.length);
      out.flush();
    }
  }
}
