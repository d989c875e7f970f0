package smallrye;

import channel.Records;
import com.fasterxml.jackson.databind.JsonNode;
import driven.DrivenApplication;
import driven.DrivenApplication.Kind;
import driven.DrivenConsumer;
import driven.Job;
import driven.Member;
import driven.Out;
import io.smallrye.config.PropertiesConfigSource;
import io.smallrye.config.SmallRyeConfigBuilder;
import jakarta.enterprise.inject.se.SeContainer;
import java.io.IOException;
import java.net.URL;
import java.net.URLClassLoader;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.eclipse.microprofile.config.Config;
import org.eclipse.microprofile.config.spi.ConfigProviderResolver;
import org.jboss.weld.environment.se.Weld;

/**
 * The driven application whose members may also be channels of SmallRye Reactive Messaging, as applications of Quarkus
 * have them; one such member at a time. How it commits is the channel's {@code commit-strategy}: {@code throttled},
 * {@code latest}, or {@code ignore}, with which the client commits.
 */
public final class SmallRyeApplication implements Member {
  private static final String CHANNEL = "mp.messaging.incoming.records.";
  private static final String BYTES = "org.apache.kafka.common.serialization.ByteArrayDeserializer";

  private final SeContainer container;

  private SmallRyeApplication(SeContainer container) {
    this.container = container;
  }

  /** Ends with standard input. */
  public static void main(String[] arguments) throws IOException {
    Map<String, Kind> kinds = new ConcurrentHashMap<>();
    kinds.put("consumer", DrivenConsumer::start);
    kinds.put("smallrye-listener", SmallRyeApplication::start);
    DrivenApplication.run(kinds);
  }

  private static Member start(Job job, Out out) {
    Records.goTo(job, out);
    // A configuration belongs to a class loader: each member's is its own.
    ClassLoader loader = new URLClassLoader(new URL[0], SmallRyeApplication.class.getClassLoader());
    Thread.currentThread().setContextClassLoader(loader);
    ConfigProviderResolver.instance().registerConfig(config(job), loader);
    Weld weld = new Weld(job.name);
    weld.setClassLoader(loader);
    return new SmallRyeApplication(weld.addBeanClass(Records.class).initialize());
  }

  private static Config config(Job job) {
    Map<String, String> channel = new HashMap<>();
    channel.put("connector", "smallrye-kafka");
    channel.put("topics", String.join(",", job.topics));
    channel.put("commit-strategy", job.commit);
    channel.put("key.deserializer", BYTES);
    channel.put("value.deserializer", BYTES);
    job.config.forEach((name, value) -> channel.put(name.toString(), value.toString()));
    channel.put("enable.auto.commit", String.valueOf(job.commit.equals("ignore")));
    Map<String, String> all = new HashMap<>();
    channel.forEach((name, value) -> all.put(CHANNEL + name, value));
    return new SmallRyeConfigBuilder().withSources(new PropertiesConfigSource(all, "the member's")).build();
  }

  @Override
  public Object ask(String what, JsonNode command) {
    throw new IllegalArgumentException(what);
  }

  @Override
  public void stop() {
    container.close();
  }
}
