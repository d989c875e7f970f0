package io.tidegate.agent.runtime;

import io.tidegate.agent.bridge.Attacher;
import io.tidegate.agent.bridge.CommitCall;
import io.tidegate.agent.bridge.Governed;
import io.tidegate.agent.core.CoreSettings;
import io.tidegate.agent.core.Notices;
import java.lang.ref.WeakReference;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Function;
import java.util.function.LongSupplier;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.common.config.ConfigException;

/** Governs the consumers of this copy of kafka-clients. Made by the agent, once for the copy. */
public final class Attachments implements Attacher {
  private static final LongSupplier CLOCK = System::nanoTime;

  private final Function<Boolean, Optional<String>> trouble;
  private final Settings settings;
  private final AgentLog log;
  private final Groups groups = new Groups();
  private final Set<String> told = ConcurrentHashMap.newKeySet();

  /**
   * @param trouble why consumers cannot be governed; asked with whether they are of the protocol
   *     {@code consumer}. Empty: they can
   * @throws SettingsException where the environment says something that means nothing
   */
  public Attachments(Function<Boolean, Optional<String>> trouble) throws SettingsException {
    this.trouble = trouble;
    this.settings = Settings.read(Environment.ofThisProcess());
    this.log = AgentLog.of(settings);
  }

  @Override
  public RuntimeException attach(Object consumer, Object config) {
    ConsumerConfig its = (ConsumerConfig) config;
    String group = its.getString(ConsumerConfig.GROUP_ID_CONFIG);
    if (group == null || group.isEmpty() || OwnClients.isCreating()) {
      return null;
    }
    OwnOptions options;
    try {
      options = OwnOptions.takeOut(its.originals(), ConsumerConfig.configNames());
    } catch (ConfigException wrong) {
      ((Consumer<?, ?>) consumer).close(Duration.ZERO);
      return wrong;
    }
    KafkaClient client;
    try {
      client = KafkaClient.of(consumer, its.getString(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG));
    } catch (ReflectiveOperationException | LinkageError | ClassCastException unknown) {
      isNotGoverned(group, "its client is built otherwise: " + unknown);
      return null;
    }
    Optional<String> why = trouble.apply(client.isNewer());
    if (why.isPresent()) {
      isNotGoverned(group, why.get());
      return null;
    }
    govern(client, consumer, its, options);
    return null;
  }

  private void isNotGoverned(String group, String why) {
    if (told.add(why)) {
      log.warning(
          String.format(
              "group %s: the agent does not govern this consumer, nor others like it: %s",
              Quoted.plain(group), why));
    }
  }

  private void govern(
      KafkaClient client, Object consumer, ConsumerConfig config, OwnOptions options) {
    String group = config.getString(ConsumerConfig.GROUP_ID_CONFIG);
    StartOptions environment = settings.newPartitionsOf(group);
    options.notes(group, environment).forEach(log::info);
    Links.Lease lease = Links.lease(config.originals(), settings);
    // The link outlives the consumer, and must not keep it: an application may drop it unclosed.
    AtomicReference<WeakReference<Gatekeeper>> its =
        new AtomicReference<>(new WeakReference<>(null));
    Runnable news =
        () -> {
          Gatekeeper gatekeeper = its.get().get();
          if (gatekeeper != null) {
            gatekeeper.hasNews();
          }
        };
    CoreSettings asked = coreSettings(config, options, environment);
    ConsumerGate gate = new ConsumerGate(asked, lease.link(), CLOCK, news);
    boolean isNewer = client.isNewer();
    Gatekeeper gatekeeper =
        new Gatekeeper(
            gate, client, lease.link(), CLOCK, log, () -> trouble.apply(isNewer).isPresent());
    its.set(new WeakReference<>(gatekeeper));
    lease.link().listen(news);
    groups.add(gate);
    ConsumerMember member =
        new ConsumerMember(
            gate,
            gatekeeper,
            client,
            CLOCK,
            () -> {
              groups.remove(gate);
              lease.link().unlisten(news);
              lease.close();
            });
    ((Governed) client.subscriptions()).tidegate$member(member);
    ((Governed) consumer).tidegate$member(member);
  }

  private CoreSettings coreSettings(
      ConsumerConfig config, OwnOptions options, StartOptions environment) {
    // Kafka's own auto-commit commits positions: what it has delivered.
    boolean isAutomatic = config.getBoolean(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG);
    CoreSettings.Builder built =
        CoreSettings.of(config.getString(ConsumerConfig.GROUP_ID_CONFIG))
            .clientCommits(isAutomatic)
            .clientStores(isAutomatic)
            .notices(notices());
    settings.openUnreadAfter().ifPresent(built::openUnreadAfter);
    options.rule(environment).ifPresent(built::rule);
    return built.build();
  }

  private Notices notices() {
    return new Notices() {
      @Override
      public void info(String message) {
        log.info(message);
      }

      @Override
      public void warn(String message) {
        log.warning(message);
      }
    };
  }

  @Override
  public CommitCall transactionBegins(Map<?, ?> offsets, Object groupMetadata) {
    if (offsets == null || !(groupMetadata instanceof ConsumerGroupMetadata)) {
      return null;
    }
    return groups.transactionBegins(((ConsumerGroupMetadata) groupMetadata).groupId(), offsets);
  }
}
