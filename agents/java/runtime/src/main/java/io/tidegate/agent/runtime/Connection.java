package io.tidegate.agent.runtime;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.types.Password;

/**
 * How a consumer of the application reaches its cluster, and who it is there: of its settings those
 * that the agent's own clients come with.
 *
 * <p>Equal where two consumers reach one cluster in one way, whatever they are called. What is
 * compared is a digest: no secret is in a text here.
 */
final class Connection {
  private static final Set<String> NAMES =
      new HashSet<>(
          Arrays.asList(
              "bootstrap.servers",
              "client.dns.lookup",
              "connections.max.idle.ms",
              "metadata.recovery.strategy",
              "metadata.recovery.rebootstrap.trigger.ms",
              "receive.buffer.bytes",
              "send.buffer.bytes"));

  private static final List<String> PREFIXES =
      Arrays.asList("security.", "ssl.", "sasl.", "socket.", "reconnect.backoff", "retry.backoff");

  private static final String CLIENT_ID = "client.id";

  /** Makes digests of secrets worth nothing outside this process. */
  private static final byte[] SALT = salt();

  private final Map<String, Object> settings;
  private final String clientId;
  private final ClassLoader loader;
  private final byte[] digest;

  /** What can only be compared with itself, in the order of the settings' names. */
  private final List<Object> objects = new ArrayList<>();

  private Connection(Map<String, Object> settings, String clientId, ClassLoader loader) {
    this.settings = settings;
    this.clientId = clientId;
    this.loader = loader;
    this.digest = digest();
  }

  /**
   * @param originals of the application's {@code ConsumerConfig}
   * @param loader the context class loader that the application's client was made with, by which
   *     classes that settings name are found
   */
  static Connection of(Map<String, ?> originals, ClassLoader loader) {
    boolean isSecured = isSecured(originals.get("security.protocol"));
    Set<String> known = known();
    Map<String, Object> found = new TreeMap<>();
    originals.forEach(
        (name, value) -> {
          // What no client knows may be a security plug-in's, such as a callback handler's.
          boolean isUnknown = !known.contains(name) && !isTheAgents(name) && !isProviders(name);
          boolean isPlugins = isSecured && isUnknown;
          if (value != null && (isConnection(name) || isPlugins)) {
            found.put(name, value);
          }
        });
    Object clientId = originals.get(CLIENT_ID);
    String name = clientId == null || clientId.toString().isEmpty() ? "consumer" : clientId + "";
    return new Connection(Collections.unmodifiableMap(found), name, loader);
  }

  private static boolean isSecured(Object protocol) {
    return protocol != null
        && !protocol.toString().trim().toUpperCase(Locale.ROOT).equals("PLAINTEXT");
  }

  private static boolean isConnection(String name) {
    return NAMES.contains(name) || PREFIXES.stream().anyMatch(name::startsWith);
  }

  private static boolean isTheAgents(String name) {
    return name.startsWith("auto.offset.reset.");
  }

  /** Originals are what has come of these already. */
  private static boolean isProviders(String name) {
    return name.startsWith("config.providers");
  }

  private static byte[] salt() {
    byte[] salt = new byte[32];
    new SecureRandom().nextBytes(salt);
    return salt;
  }

  private static Set<String> known() {
    Set<String> known = new HashSet<>(ConsumerConfig.configNames());
    known.addAll(ProducerConfig.configNames());
    known.addAll(AdminClientConfig.configNames());
    return known;
  }

  /** The settings; maybe with secrets. */
  Map<String, Object> settings() {
    return settings;
  }

  /** What the application calls its client. */
  String clientId() {
    return clientId;
  }

  /** The context class loader that clients are made with. */
  ClassLoader loader() {
    return loader;
  }

  private byte[] digest() {
    MessageDigest sha;
    try {
      sha = MessageDigest.getInstance("SHA-256");
    } catch (NoSuchAlgorithmException impossible) {
      throw new IllegalStateException(impossible);
    }
    sha.update(SALT);
    settings.forEach(
        (name, value) -> {
          feed(sha, name);
          feed(sha, value);
        });
    return sha.digest();
  }

  private void feed(MessageDigest sha, Object value) {
    if (value instanceof Password) {
      feed(sha, ((Password) value).value());
    } else if (value instanceof CharSequence
        || value instanceof Number
        || value instanceof Boolean) {
      byte[] bytes = value.toString().getBytes(StandardCharsets.UTF_8);
      sha.update((byte) 't');
      sha.update(ByteBuffer.allocate(4).putInt(bytes.length).array());
      sha.update(bytes);
    } else if (value instanceof Collection) {
      Collection<?> values = (Collection<?>) value;
      sha.update((byte) 'c');
      sha.update(ByteBuffer.allocate(4).putInt(values.size()).array());
      values.forEach(each -> feed(sha, each));
    } else {
      sha.update((byte) 'o');
      objects.add(value);
    }
  }

  @Override
  public boolean equals(Object other) {
    if (!(other instanceof Connection)) {
      return false;
    }
    Connection that = (Connection) other;
    return loader == that.loader
        && MessageDigest.isEqual(digest, that.digest)
        && isSame(objects, that.objects);
  }

  private static boolean isSame(List<Object> one, List<Object> other) {
    boolean same = one.size() == other.size();
    for (int i = 0; same && i < one.size(); i++) {
      same = one.get(i) == other.get(i);
    }
    return same;
  }

  @Override
  public int hashCode() {
    return Arrays.hashCode(digest);
  }

  @Override
  public String toString() {
    return "Connection(" + Quoted.plain(clientId) + ")";
  }
}
