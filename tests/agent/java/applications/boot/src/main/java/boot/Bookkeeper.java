package boot;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.ConsumerAwareRebalanceListener;
import org.springframework.stereotype.Component;

/**
 * What {@code tests/e2e/cluster/application/bookkeeper.py} does, as one writes it with Spring Boot: each batch is entered
 * into a ledger before the container commits it.
 *
 * <p>Environment: {@code TOPIC}, {@code GROUP}, {@code LEDGER}, and what Spring Boot reads.
 */
@Component
@ConditionalOnProperty("ledger")
class Bookkeeper implements ConsumerAwareRebalanceListener {
  private static final ObjectMapper JSON = new ObjectMapper();

  private final KafkaTemplate<String, String> template;
  private final String ledger;
  private final String member;

  Bookkeeper(
      KafkaTemplate<String, String> template,
      @Value("${ledger}") String ledger,
      @Value("${hostname}") String member) {
    this.template = template;
    this.ledger = ledger;
    this.member = member;
  }

  @KafkaListener(topics = "${topic}", groupId = "${group}", batch = "true")
  void given(List<ConsumerRecord<String, String>> records) {
    double now = now();
    enter(
        now,
        records.stream().map(r -> List.<Object>of(r.topic(), r.partition(), r.offset(), now)).toList());
  }

  @Override
  public void onPartitionsAssigned(Consumer<?, ?> consumer, Collection<TopicPartition> partitions) {
    enter(now(), List.of());
  }

  /** Returns once the ledger has it. */
  private void enter(double time, List<List<Object>> records) {
    Map<String, Object> entry = Map.of("t", time, "member", member, "records", records);
    try {
      template.send(ledger, JSON.writeValueAsString(entry)).join();
    } catch (JsonProcessingException impossible) {
      throw new IllegalStateException(impossible);
    }
  }

  private static double now() {
    return System.currentTimeMillis() / 1000.0;
  }
}
