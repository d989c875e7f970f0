package io.tidegate.agent.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.errors.SaslAuthenticationException;
import org.junit.jupiter.api.Test;

/** Which of an application's settings the agent's own clients come with, and who shares a link. */
class ConnectionTest {
  private static final ClassLoader LOADER = ConnectionTest.class.getClassLoader();
  private static final Map<String, Object> SECURED =
      Map.of(
          "bootstrap.servers", "kafka:9093",
          "security.protocol", "SASL_SSL",
          "sasl.mechanism", "PLAIN",
          "sasl.jaas.config", "secret-4711",
          "ssl.truststore.location", "/ca");

  private static Connection of(Map<String, ?> originals) {
    return Connection.of(originals, LOADER);
  }

  private static Map<String, Object> with(String name, Object value) {
    Map<String, Object> settings = new HashMap<>(SECURED);
    settings.put(name, value);
    return settings;
  }

  @Test
  void theAgentsClientsComeAsTheApplicationDoesAndDoNothingElseThatItDoes() {
    Map<String, Object> originals = new HashMap<>(SECURED);
    Set<String> others =
        Set.of(
            "group.id",
            "group.instance.id",
            "group.protocol",
            "group.remote.assignor",
            "interceptor.classes",
            "metric.reporters",
            "client.id",
            "client.rack",
            "partition.assignment.strategy",
            "transactional.id",
            "enable.auto.commit",
            "auto.offset.reset",
            "auto.offset.reset.latest.max.age",
            "isolation.level",
            "key.deserializer",
            "value.serializer",
            "max.poll.records",
            "request.timeout.ms",
            "config.providers",
            "config.providers.vault.class");
    others.forEach(name -> originals.put(name, "theirs"));

    // Of these the oldest client knows none: they would be a security plug-in's for all it knows.
    Set<String> newer = Set.of("group.protocol", "group.remote.assignor");
    Map<String, Object> expected = new HashMap<>(SECURED);
    newer.forEach(name -> expected.put(name, "theirs"));
    assertEquals(new TreeMap<>(expected).keySet(), of(originals).settings().keySet());
  }

  @Test
  void whatNoClientKnowsIsForSecurityPlugInsWhereThereAreAny() {
    Object bean = new Object();

    assertEquals(bean, of(with("their.callback.bean", bean)).settings().get("their.callback.bean"));
    assertEquals(
        Set.of("bootstrap.servers"),
        of(Map.of("bootstrap.servers", "kafka:9092", "their.bean", bean)).settings().keySet());
  }

  @Test
  void whatReachesOneClusterInOneWayIsEqualWhateverItIsCalled() {
    Map<String, Object> other = new HashMap<>(SECURED);
    other.put("client.id", "other");
    other.put("group.id", "others");
    other.put("sasl.jaas.config", new Password("secret-4711"));

    assertEquals(of(SECURED), of(other));
    assertEquals(of(SECURED).hashCode(), of(other).hashCode());
    assertEquals("other", of(other).clientId());
    assertEquals("consumer", of(SECURED).clientId());
  }

  @Test
  void anotherSecretObjectOrClassLoaderIsAnotherConnection() {
    Object bean = new Object();

    assertNotEquals(of(SECURED), of(with("sasl.jaas.config", "secret-4712")));
    assertNotEquals(of(SECURED), of(with("ssl.protocol", "TLSv1.3")));
    assertNotEquals(of(SECURED), Connection.of(SECURED, null));
    assertEquals(of(with("bean", bean)), of(with("bean", bean)));
    assertNotEquals(of(with("bean", bean)), of(with("bean", new Object())));
    assertNotEquals(
        of(with("bootstrap.servers", List.of("a:1", "b:1"))),
        of(with("bootstrap.servers", List.of("a:1,b:1"))));
  }

  @Test
  void noSecretIsInItsText() {
    assertFalse(of(SECURED).toString().contains("4711"));
  }

  @Test
  void propertiesAreSettingsToo() {
    Properties properties = new Properties();
    properties.put("bootstrap.servers", "kafka:9092");
    Map<String, Object> originals = new HashMap<>();
    properties.forEach((name, value) -> originals.put((String) name, value));

    assertEquals(of(Map.of("bootstrap.servers", "kafka:9092")), of(originals));
  }

  @Test
  void aReasonTellsWhatKafkaSaysAndNothingWithASettingsValue() {
    KafkaException wrapped =
        new KafkaException(
            "Failed to construct kafka consumer",
            new ConfigException("ssl.keystore.password", "4711", "is wrong"));

    assertEquals("ConfigException", Reason.of(wrapped));
    assertEquals("IllegalStateException", Reason.of(new IllegalStateException("4711")));
    assertEquals(
        "SaslAuthenticationException: Authentication failed",
        Reason.of(
            new KafkaException("x", new SaslAuthenticationException("Authentication failed"))));
    assertEquals("KafkaException: closed", Reason.of(new KafkaException("closed")));
  }
}
