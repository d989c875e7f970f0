package streams;

import com.fasterxml.jackson.databind.JsonNode;
import driven.DrivenApplication;
import driven.DrivenApplication.Kind;
import driven.DrivenConsumer;
import driven.Job;
import driven.Member;
import driven.Out;
import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.Stores;

/**
 * The driven application whose members may also be Kafka Streams' topologies: without state, or with a store in memory
 * that has a changelog.
 */
public final class StreamsApplication implements Member {
  private final KafkaStreams streams;

  private StreamsApplication(KafkaStreams streams) {
    this.streams = streams;
  }

  /** Ends with standard input. */
  public static void main(String[] arguments) throws IOException {
    Map<String, Kind> kinds = new ConcurrentHashMap<>();
    kinds.put("consumer", DrivenConsumer::start);
    kinds.put("streams-listener", (job, out) -> start(job, out, false));
    kinds.put("streams-counting-listener", (job, out) -> start(job, out, true));
    DrivenApplication.run(kinds);
  }

  private static Member start(Job job, Out out, boolean counts) {
    StreamsBuilder builder = new StreamsBuilder();
    KStream<byte[], byte[]> records = builder.stream(job.topics);
    records.process(() -> new Noting(job.name, out));
    if (counts) {
      records.groupByKey().count(Materialized.as(Stores.inMemoryKeyValueStore("count")));
    }
    Properties config = new Properties();
    job.config.forEach(config::put);
    config.put("application.id", job.config.getProperty("group.id"));
    config.remove("group.id");
    config.remove("enable.auto.commit");
    config.put("commit.interval.ms", "300");
    config.put("default.key.serde", Serdes.ByteArraySerde.class);
    config.put("default.value.serde", Serdes.ByteArraySerde.class);
    if (job.commit.equals("transaction")) {
      config.put("processing.guarantee", "exactly_once_v2");
      config.put("replication.factor", "1");
    }
    KafkaStreams streams = new KafkaStreams(builder.build(), config);
    streams.start();
    return new StreamsApplication(streams);
  }

  @Override
  public Object ask(String what, JsonNode command) {
    throw new IllegalArgumentException(what);
  }

  @Override
  public void stop() {
    if (!streams.close(Duration.ofSeconds(30))) {
      throw new IllegalStateException("the topology does not end");
    }
  }

  private static final class Noting extends ContextualProcessor<byte[], byte[], Void, Void> {
    private final String member;
    private final Out out;

    Noting(String member, Out out) {
      this.member = member;
      this.out = out;
    }

    @Override
    public void process(Record<byte[], byte[]> record) {
      context().recordMetadata().ifPresent(from -> out.records(
          member,
          Out.now(),
          List.of(new ConsumerRecord<>(from.topic(), from.partition(), from.offset(), (byte[]) null, (byte[]) null))));
    }
  }
}
