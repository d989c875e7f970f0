import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * An ordinary application that reads a topic to its end as fast as it can, several times, and knows nothing of an agent.
 *
 * <p>Its argument is a JSON object: bootstrap, group, topic, partitions, records (of one reading), warm and counted
 * (readings), protocol, closed (a partition that it does not wait for, or -1), pauses (whether it pauses that one
 * itself), idle_ms (before it ends), out (a file). It writes the CPU seconds and the seconds of each reading that counts,
 * and fails where one was given records of the closed partition.
 */
public final class ReadingApplication {
    private static final Duration POLL = Duration.ofMillis(100);
    private static final ObjectMapper JSON = new ObjectMapper();

    private final KafkaConsumer<byte[], byte[]> consumer;
    private final int closed;
    private long ofClosed;

    private ReadingApplication(KafkaConsumer<byte[], byte[]> consumer, int closed) {
        this.consumer = consumer;
        this.closed = closed;
    }

    public static void main(String[] arguments) throws IOException, InterruptedException {
        JsonNode job = JSON.readTree(arguments[0]);
        Properties config = new Properties();
        config.put("bootstrap.servers", job.get("bootstrap").asText());
        config.put("group.id", job.get("group").asText());
        config.put("auto.offset.reset", "earliest");
        if (job.get("protocol").asText().equals("consumer")) {
            config.put("group.protocol", "consumer");
        }
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            Map<String, Object> measured = new ReadingApplication(consumer, job.get("closed").asInt()).measure(job);
            JSON.writeValue(new File(job.get("out").asText()), measured);
            Thread.sleep(job.get("idle_ms").asLong()); // takes no CPU, and lets others see who was there
        }
    }

    private Map<String, Object> measure(JsonNode job) throws IOException {
        String topic = job.get("topic").asText();
        int partitions = job.get("partitions").asInt();
        consumer.subscribe(Collections.singleton(topic));
        while (consumer.assignment().size() < partitions) {
            count(consumer.poll(POLL));
        }
        List<TopicPartition> open = new ArrayList<>(consumer.assignment());
        if (closed >= 0) {
            TopicPartition left = new TopicPartition(topic, closed);
            open.remove(left);
            if (job.get("pauses").asBoolean()) {
                consumer.pause(Collections.singleton(left));
            }
        }
        List<Double> cpu = new ArrayList<>();
        List<Double> wall = new ArrayList<>();
        int warm = job.get("warm").asInt();
        for (int reading = 0; reading < warm + job.get("counted").asInt(); reading++) {
            consumer.seekToBeginning(open);
            long began = System.nanoTime();
            long before = cpuNanos();
            long ofClosedBefore = ofClosed;
            long records = job.get("records").asLong() * open.size() / partitions;
            for (long read = 0; read < records; ) {
                read += count(consumer.poll(POLL));
            }
            if (reading < warm) {
                continue;
            }
            if (ofClosed > ofClosedBefore) {
                throw new IllegalStateException("records of the partition that is closed");
            }
            cpu.add((cpuNanos() - before) / 1e9);
            wall.add((System.nanoTime() - began) / 1e9);
        }
        Map<String, Object> measured = new HashMap<>();
        measured.put("cpu_s", cpu);
        measured.put("wall_s", wall);
        return measured;
    }

    /**
     * Of all threads but the JIT compilers'. What these do ends some time, if late: methods that are called once a fetch
     * come to be compiled after minutes.
     */
    private static long cpuNanos() throws IOException {
        long sum = 0;
        for (File task : new File("/proc/self/task").listFiles()) {
            try {
                if (!read(task, "comm").matches("C[12] CompilerThre.*")) {
                    sum += Long.parseLong(read(task, "schedstat").split(" ")[0]);
                }
            } catch (NoSuchFileException ended) {
                continue;
            }
        }
        return sum;
    }

    private static String read(File task, String name) throws IOException {
        Path path = task.toPath().resolve(name);
        return new String(Files.readAllBytes(path), StandardCharsets.UTF_8).trim();
    }

    /** Of the open partitions. */
    private int count(ConsumerRecords<byte[], byte[]> records) {
        int count = 0;
        for (ConsumerRecord<byte[], byte[]> record : records) {
            if (record.partition() == closed) {
                ofClosed++;
            } else {
                count++;
            }
        }
        return count;
    }
}
