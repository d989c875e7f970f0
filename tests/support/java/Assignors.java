import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Kafka's own assignors. Each line of standard input is one group: {"assignor": "sticky", "topics": {"orders": 3},
 * "members": [{"id": "", "topics": [], "owned": [["orders", 0]], "generation": -1, "instance": null, "data": "00ff"}]};
 * each line of standard output answers one: {"a-1": [["orders", 0]]}, or {"error": ""} where the assignor throws.
 */
public final class Assignors {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Assignors() {}

    public static void main(String[] arguments) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            answers.println(answer(JSON.readTree(line)));
        }
    }

    private static ObjectNode answer(JsonNode group) {
        ConsumerPartitionAssignor assignor = assignor(group.get("assignor").asText());
        ObjectNode answer = JSON.createObjectNode();
        try {
            // As ConsumerCoordinator.onLeaderElected does it.
            Map<String, Subscription> members = new HashMap<>();
            group.get("members").forEach(member -> members.put(member.get("id").asText(), subscription(member)));
            assignor.assign(cluster(group.get("topics")), new GroupSubscription(members))
                    .groupAssignment()
                    .forEach((member, given) -> {
                        ArrayNode partitions = answer.putArray(member);
                        given.partitions().forEach(p -> partitions.addArray().add(p.topic()).add(p.partition()));
                    });
            return answer;
        } catch (RuntimeException thrown) {
            return JSON.createObjectNode().put("error", thrown.toString());
        }
    }

    private static ConsumerPartitionAssignor assignor(String name) {
        return switch (name) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            case "cooperative-sticky" -> new CooperativeStickyAssignor();
            default -> throw new IllegalArgumentException(name);
        };
    }

    private static Subscription subscription(JsonNode member) {
        List<String> topics = new ArrayList<>();
        member.get("topics").forEach(topic -> topics.add(topic.asText()));
        List<TopicPartition> owned = new ArrayList<>();
        member.get("owned").forEach(p -> owned.add(new TopicPartition(p.get(0).asText(), p.get(1).asInt())));
        JsonNode data = member.get("data");
        ByteBuffer userData = data.isNull() ? null : ByteBuffer.wrap(HexFormat.of().parseHex(data.asText()));
        Subscription subscription =
                new Subscription(topics, userData, owned, member.get("generation").asInt(), Optional.empty());
        if (!member.get("instance").isNull()) {
            subscription.setGroupInstanceId(Optional.of(member.get("instance").asText()));
        }
        return subscription;
    }

    private static Cluster cluster(JsonNode topics) {
        List<PartitionInfo> partitions = new ArrayList<>();
        Node node = new Node(1, "localhost", 9092);
        Node[] replicas = {node};
        topics.properties().forEach(topic -> {
            for (int number = 0; number < topic.getValue().asInt(); number++) {
                partitions.add(new PartitionInfo(topic.getKey(), number, node, replicas, replicas));
            }
        });
        return new Cluster("tests", List.of(node), partitions, Set.of(), Set.of());
    }
}
