import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.zip.CRC32;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A process with 1..n ordinary Java consumers, each in a thread with a plain poll loop. Argument, commands on standard
 * input and lines on standard output are those of the Python worker (clients/worker.py), where they are described.
 */
public final class ConsumerProcess {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long SHUTDOWN_SECONDS = 20;
    private static final Duration POLL = Duration.ofMillis(100);
    private static final List<String> BY_TRANSACTIONS = List.of("transactions", "aborts");

    private final List<String> topics = new ArrayList<>();
    private final String commit;
    private final double commitEverySeconds;
    private final double holdSeconds;
    private final Map<String, Member> members = new ConcurrentHashMap<>();
    private final PrintStream out = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), false);

    private ConsumerProcess(JsonNode given) {
        given.get("topics").forEach(topic -> topics.add(topic.asText()));
        commit = given.get("commit").asText();
        commitEverySeconds = given.get("commit_every_s").asDouble();
        holdSeconds = given.get("hold_s").asDouble();
    }

    public static void main(String[] arguments) throws IOException, InterruptedException {
        JsonNode given = JSON.readTree(arguments[0]);
        ConsumerProcess process = new ConsumerProcess(given);
        given.get("members").forEach(process::start);
        System.exit(process.obey() ? 0 : 1); // a client's own threads must not keep a stopped process alive
    }

    private void start(JsonNode spec) {
        Member member = new Member(spec);
        members.put(member.name, member);
        member.start();
    }

    /** Follow the commands until standard input ends; true when every member closed in time. */
    private boolean obey() throws IOException, InterruptedException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.strip().split(" ", 2);
            String rest = words.length > 1 ? words[1] : "";
            switch (words[0]) {
                case "start" -> start(JSON.readTree(rest));
                case "stop" -> members.values().stream()
                        .filter(member -> rest.isEmpty() || member.name.equals(rest))
                        .forEach(member -> member.stopping.countDown());
                default -> throw new IllegalArgumentException("unknown command " + line);
            }
        }
        members.values().forEach(member -> member.stopping.countDown());
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(SHUTDOWN_SECONDS);
        boolean closed = true;
        for (Member member : members.values()) {
            member.join(Math.max(1, TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime())));
            closed &= !member.isAlive();
        }
        return closed;
    }

    private static double now() {
        Instant now = Instant.now();
        return now.getEpochSecond() + now.getNano() / 1e9;
    }

    private void say(ObjectNode line) {
        byte[] bytes = (line.toString() + "\n").getBytes(StandardCharsets.UTF_8);
        synchronized (out) {
            out.write(bytes, 0, bytes.length);
            out.flush();
        }
    }

    private final class Member extends Thread implements ConsumerRebalanceListener {
        private final String name;
        private final JsonNode spec;
        private final CountDownLatch stopping = new CountDownLatch(1);
        private final Uncommitted uncommitted = new Uncommitted();

        Member(JsonNode spec) {
            super(spec.get("name").asText());
            this.name = getName();
            this.spec = spec;
            setDaemon(true);
        }

        private ObjectNode line(String event) {
            return JSON.createObjectNode().put("t", now()).put("m", name).put("e", event);
        }

        private void failed(String text) {
            say(line("error").put("error", text));
        }

        @Override
        public void run() {
            try {
                if (!stopping.await(Math.round(spec.get("delay_s").asDouble() * 1000), TimeUnit.MILLISECONDS)) {
                    consume();
                }
            } catch (RuntimeException | InterruptedException ended) {
                say(line("died").put("error", ended.toString()));
                throw new IllegalStateException(ended);
            } finally {
                say(line("closed"));
            }
        }

        private void consume() {
            Properties config = new Properties();
            spec.get("config").properties().forEach(e -> config.put(e.getKey(), e.getValue().asText()));
            try (KafkaConsumer<byte[], byte[]> consumer =
                            new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
                    Transactions transactions = BY_TRANSACTIONS.contains(commit) ? new Transactions(config) : null) {
                consumer.subscribe(topics, this);
                say(line("ready"));
                while (stopping.getCount() > 0) {
                    ConsumerRecords<byte[], byte[]> records;
                    try {
                        records = consumer.poll(POLL);
                    } catch (KafkaException error) {
                        failed(error.toString());
                        continue;
                    }
                    double polled = now();
                    if (!records.isEmpty()) {
                        report(polled, records);
                        uncommitted.received(polled, records);
                    }
                    if (transactions != null) {
                        transactions.goOn(consumer, polled);
                        continue;
                    }
                    Map<TopicPartition, OffsetAndMetadata> due = uncommitted.due(polled);
                    if (!due.isEmpty()) {
                        commit(consumer, due);
                    }
                }
            }
        }

        private void report(double polled, ConsumerRecords<byte[], byte[]> records) {
            ObjectNode line = line("record");
            ArrayNode rows = line.putArray("r");
            for (ConsumerRecord<byte[], byte[]> record : records) {
                CRC32 crc = new CRC32();
                for (byte[] part : new byte[][] {record.key(), record.value()}) {
                    if (part != null) {
                        crc.update(part);
                    }
                }
                rows.addArray()
                        .add(polled).add(record.partition()).add(record.offset()).add(record.topic())
                        .add(crc.getValue());
            }
            say(line);
        }

        private void commit(KafkaConsumer<byte[], byte[]> consumer, Map<TopicPartition, OffsetAndMetadata> due) {
            try {
                switch (commit) {
                    case "sync" -> {
                        consumer.commitSync();
                        committed(due, null);
                    }
                    // A KIP-848 consumer may tell no offsets of a commit that was refused.
                    case "async" -> consumer.commitAsync((told, error) -> committed(told == null ? due : told, error));
                    default -> consumer.commitAsync(due, (told, error) -> committed(due, error));
                }
            } catch (KafkaException refused) {
                committed(due, refused);
            }
        }

        private void committed(Map<TopicPartition, OffsetAndMetadata> offsets, Exception error) {
            String refused = error == null ? null : error.getClass().getSimpleName();
            ObjectNode line = line("commit");
            ArrayNode rows = line.putArray("o");
            offsets.forEach((partition, offset) -> rows.addArray()
                    .add(partition.topic()).add(partition.partition()).add(offset.offset()).add(refused));
            say(line.put("error", refused));
        }

        private void rebalanced(String event, Collection<TopicPartition> partitions) {
            ObjectNode line = line(event);
            ArrayNode rows = line.putArray("p");
            partitions.forEach(partition -> rows.addArray().add(partition.topic()).add(partition.partition()));
            say(line);
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            rebalanced("assign", partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            uncommitted.lost(partitions);
            rebalanced("revoke", partitions);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            uncommitted.lost(partitions);
            rebalanced("lost", partitions);
        }

        /** The member's exactly-once side: one transaction after the other, each open for {@code holdSeconds}. */
        private final class Transactions implements AutoCloseable {
            private final KafkaProducer<byte[], byte[]> producer;
            private boolean open;
            private double since;
            private int ended;

            Transactions(Properties consumer) {
                Properties config = new Properties();
                config.put("bootstrap.servers", consumer.get("bootstrap.servers"));
                config.put("transactional.id", consumer.get("group.id") + "-" + name + "-" + System.nanoTime());
                producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
                producer.initTransactions();
            }

            void goOn(KafkaConsumer<byte[], byte[]> consumer, double at) {
                if (open && at - since >= holdSeconds) {
                    open = false;
                    ended++;
                    if (commit.equals("aborts") && ended % 2 == 0) {
                        producer.abortTransaction();
                    } else {
                        producer.commitTransaction();
                    }
                }
                Map<TopicPartition, OffsetAndMetadata> due = open ? Map.of() : uncommitted.due(at);
                if (due.isEmpty()) {
                    return;
                }
                producer.beginTransaction();
                try {
                    producer.sendOffsetsToTransaction(due, consumer.groupMetadata());
                    open = true;
                    since = at;
                } catch (KafkaException refused) {
                    committed(due, refused);
                    producer.abortTransaction();
                }
            }

            @Override
            public void close() {
                if (open) {
                    producer.abortTransaction();
                }
                producer.close(Duration.ofSeconds(5));
            }
        }
    }

    /** Which offsets the application has to commit by hand, and since when; as in the Python worker. */
    private final class Uncommitted {
        private record Batch(double since, Map<TopicPartition, OffsetAndMetadata> offsets) {}

        private final boolean byHand =
                List.of("sync", "async", "worker").contains(commit) || BY_TRANSACTIONS.contains(commit);
        private final double dueSeconds = commit.equals("worker") ? holdSeconds : commitEverySeconds;
        private final Deque<Batch> batches = new ArrayDeque<>();

        void received(double at, ConsumerRecords<byte[], byte[]> records) {
            if (!byHand) {
                return;
            }
            if (batches.isEmpty() || at - batches.getLast().since() >= commitEverySeconds) {
                batches.add(new Batch(at, new HashMap<>()));
            }
            for (ConsumerRecord<byte[], byte[]> record : records) {
                batches.getLast().offsets().put(
                        new TopicPartition(record.topic(), record.partition()),
                        new OffsetAndMetadata(record.offset() + 1));
            }
        }

        /** Forget what was received of them: a commit is of what is owned by then. A {@code worker} does not. */
        void lost(Collection<TopicPartition> partitions) {
            if (!commit.equals("worker")) {
                batches.forEach(batch -> batch.offsets().keySet().removeAll(partitions));
            }
        }

        Map<TopicPartition, OffsetAndMetadata> due(double at) {
            Map<TopicPartition, OffsetAndMetadata> due = new HashMap<>();
            while (!batches.isEmpty() && at - batches.getFirst().since() >= dueSeconds) {
                due.putAll(batches.removeFirst().offsets());
            }
            return due;
        }
    }
}
