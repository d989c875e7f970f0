package driven;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.TopicPartition;

/** How a member is made: the members of {@code open}. */
public final class Job {
  /** Its name, which stands in all that is told of it. */
  public final String name;

  /** Of which kind. */
  public final String kind;

  /** The client's own settings. */
  public final Properties config = new Properties();

  /** What it subscribes to. */
  public final List<String> topics = new ArrayList<>();

  /** What it assigns itself, in place of a subscription. */
  public final List<TopicPartition> partitions;

  /** How it commits; see {@link Committing}. */
  public final String commit;

  /** How long a poll may take, milliseconds. */
  public final long pollMillis;

  /** Whether it polls by {@code poll(long)}, which clients have up to 3.9. */
  public final boolean pollsByNumber;

  /** How long it works on a batch, milliseconds. */
  public final long workMillis;

  Job(String name, JsonNode given) {
    this.name = name;
    kind = given.path("kind").asText("consumer");
    for (Map.Entry<String, JsonNode> entry : (Iterable<Map.Entry<String, JsonNode>>) given.get("config")::fields) {
      config.setProperty(entry.getKey(), entry.getValue().asText());
    }
    given.path("topics").forEach(topic -> topics.add(topic.asText()));
    partitions = partitions(given.path("partitions"));
    commit = given.path("commit").asText("auto");
    pollMillis = given.path("poll_ms").asLong(100);
    pollsByNumber = given.path("polls_by_number").asBoolean();
    workMillis = given.path("work_ms").asLong();
  }

  /** Rows of topic and partition, read. */
  public static List<TopicPartition> partitions(JsonNode rows) {
    List<TopicPartition> found = new ArrayList<>();
    rows.forEach(row -> found.add(new TopicPartition(row.get(0).asText(), row.get(1).asInt())));
    return found;
  }

  /** Rows of topic and partition, to be told. */
  public static List<Object> rows(Collection<TopicPartition> partitions) {
    List<Object> rows = new ArrayList<>();
    partitions.forEach(partition -> rows.add(new Object[] {partition.topic(), partition.partition()}));
    return rows;
  }
}
