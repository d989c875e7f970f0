package io.tidegate.agent.instrument;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.tidegate.agent.bridge.Hooks;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.function.UnaryOperator;
import java.util.stream.Collectors;
import net.bytebuddy.jar.asm.ClassReader;
import net.bytebuddy.jar.asm.ClassVisitor;
import net.bytebuddy.jar.asm.ClassWriter;
import net.bytebuddy.jar.asm.MethodVisitor;
import net.bytebuddy.jar.asm.Type;
import net.bytebuddy.utility.OpenedClassReader;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** The hooks fit each release of kafka-clients, and each is there once. */
class HooksTest {
  private static final String HOOKS = Type.getInternalName(Hooks.class);
  private static final String SUBSCRIPTIONS =
      "org.apache.kafka.clients.consumer.internals.SubscriptionState";
  private static final String CONSUMER = "org.apache.kafka.clients.consumer.KafkaConsumer";

  @ParameterizedTest
  @ValueSource(strings = {"2.8.2", "3.4.1", "3.7.2", "3.9.2", "4.0.2", "4.3.1"})
  void eachHookIsWhereItBelongsAndNowhereElse(String version) {
    boolean isFour = version.startsWith("4.");
    Map<String, List<String>> expected = new TreeMap<>();
    expected.put(
        "KafkaConsumer.<init>(ConsumerConfig,Deserializer,Deserializer)", List.of("created"));
    List<String> polls = List.of("goesOn", "pollBegins", "returned");
    expected.put("KafkaConsumer.poll(Duration)", polls);
    if (!isFour) {
      expected.put("KafkaConsumer.poll(long)", polls);
    }
    expected.put("KafkaConsumer.seek(TopicPartition,long)", List.of("sought"));
    expected.put("KafkaConsumer.seek(TopicPartition,OffsetAndMetadata)", List.of("sought"));
    expected.put("KafkaConsumer.seekToBeginning(Collection)", List.of("sought"));
    expected.put("KafkaConsumer.seekToEnd(Collection)", List.of("sought"));
    expected.put("SubscriptionState.isPaused(TopicPartition)", List.of("isWithheld"));
    expected.put("SubscriptionState.isFetchable(TopicPartition)", List.of("isWithheld"));
    expected.put("SubscriptionState.fetchablePartitions(Predicate)", List.of("removeWithheld"));
    expected.put("SubscriptionState.assignFromUser(Set)", List.of("reassigned"));
    expected.put("SubscriptionState.assignFromSubscribed(Collection)", List.of("reassigned"));
    expected.put("SubscriptionState.unsubscribe()", List.of("reassigned"));
    expected.put(
        "SubscriptionState.resetInitializingPositions(" + (isFour ? "Predicate)" : ")"),
        List.of(isFour ? "placed" : "mustWait"));
    expected.put(
        "ConsumerCoordinator.sendOffsetCommitRequest(Map)", List.of("commitBegins", "sent"));
    expected.put(
        "KafkaProducer.sendOffsetsToTransaction(Map,ConsumerGroupMetadata)",
        List.of("sent", "transactionBegins"));
    if (isFour || version.startsWith("3.9")) {
      expected.put(
          "CommitRequestManager$OffsetCommitRequestState.toUnsentRequest()",
          List.of("commitBeginsBy", "sent"));
    }

    Map<String, List<String>> found = hooks(woven(version));
    Map<String, List<String>> closes = new TreeMap<>(found);
    closes.keySet().removeIf(method -> !method.startsWith("KafkaConsumer.close("));
    found.keySet().removeAll(closes.keySet());

    assertEquals(expected, found);
    assertTrue(closes.size() >= 2, closes::toString);
    closes.values().forEach(hooks -> assertEquals(List.of("closed"), hooks));
  }

  @ParameterizedTest
  @CsvSource({
    "2.8.2, there is no",
    "3.4.1, there is no",
    "3.7.2, keeps its offsets",
    "3.9.2, ",
    "4.0.2, ",
    "4.3.1, "
  })
  void theNewerProtocolIsGovernedWhereItsClientIsFinished(String version, String why) {
    Client client = woven(version).client();

    assertEquals(Optional.empty(), client.trouble(false));
    assertEquals(why == null, client.trouble(true).isEmpty());
    client.trouble(true).ifPresent(trouble -> assertTrue(trouble.contains(why), trouble));
  }

  @ParameterizedTest
  @ValueSource(strings = {"fetchablePartitions", "assignFromUser", "resetInitializingPositions"})
  void whereOneHookIsMissingThereIsNone(String method) {
    KafkaJars.Woven loader = new KafkaJars.Woven("4.3.1", Map.of(SUBSCRIPTIONS, without(method)));

    assertTrue(loader.client().trouble(false).get().contains(method));
    assertNull(loader.woven(SUBSCRIPTIONS));
    assertNull(loader.woven(KafkaClass.COORDINATOR.name("")));
    assertNull(loader.woven(KafkaClass.PRODUCER.name("")));
    assertEquals(
        Map.of(
            "KafkaConsumer.<init>(ConsumerConfig,Deserializer,Deserializer)", List.of("created")),
        hooks(loader.woven(CONSUMER)));
  }

  @Test
  void aClassThatCannotBeInstrumentedAfterAllIsRemembered() {
    KafkaJars.Woven loader = woven("4.3.1");
    assertEquals(Optional.empty(), loader.client().trouble(false));

    assertNull(loader.woven(CONSUMER, new byte[] {1, 2, 3}));

    assertTrue(loader.client().trouble(false).get().contains("could not be instrumented"));
  }

  @ParameterizedTest
  @CsvSource({
    "org/apache/kafka/clients/consumer/KafkaConsumer, ''",
    "shop/inside/org/apache/kafka/clients/consumer/KafkaConsumer, shop.inside."
  })
  void aClientThatWasMovedIsKnownByTheEndOfItsName(String name, String prefix) {
    assertEquals(KafkaClass.CONSUMER, KafkaClass.of(name));
    assertEquals(prefix, KafkaClass.CONSUMER.prefix(name));
    assertEquals(prefix + CONSUMER, KafkaClass.CONSUMER.name(prefix));
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "java/lang/Object",
        "xorg/apache/kafka/clients/consumer/KafkaConsumer",
        "org/apache/kafka/clients/consumer/KafkaConsumerMetrics",
        "org/apache/kafka/clients/consumer/internals/SubscriptionState$FetchStates"
      })
  void otherClassesAreLeftAlone(String name) {
    assertNull(KafkaClass.of(name));
  }

  private static KafkaJars.Woven woven(String version) {
    return new KafkaJars.Woven(version, Collections.emptyMap());
  }

  /** By method what of the hooks it calls, for all classes of a release. */
  private static Map<String, List<String>> hooks(KafkaJars.Woven loader) {
    Map<String, List<String>> found = new TreeMap<>();
    for (KafkaClass each : KafkaClass.values()) {
      if (loader.client().uses(each)) {
        found.putAll(hooks(loader.woven(each.name(""))));
      }
    }
    return found;
  }

  private static Map<String, List<String>> hooks(byte[] woven) {
    assertNotNull(woven);
    Map<String, List<String>> found = new TreeMap<>();
    ClassReader reader = new ClassReader(woven);
    String type = reader.getClassName().substring(reader.getClassName().lastIndexOf('/') + 1);
    reader.accept(
        new ClassVisitor(OpenedClassReader.ASM_API) {
          @Override
          public MethodVisitor visitMethod(
              int access, String name, String descriptor, String signature, String[] thrown) {
            String method = type + "." + name + arguments(descriptor);
            return new MethodVisitor(OpenedClassReader.ASM_API) {
              @Override
              public void visitMethodInsn(
                  int opcode, String owner, String called, String its, boolean isInterface) {
                if (owner.equals(HOOKS)) {
                  List<String> calls = found.computeIfAbsent(method, any -> new ArrayList<>());
                  calls.add(called);
                  Collections.sort(calls);
                }
              }
            };
          }
        },
        ClassReader.SKIP_FRAMES);
    return found;
  }

  private static String arguments(String descriptor) {
    return Arrays.stream(Type.getArgumentTypes(descriptor))
        .map(type -> type.getClassName().substring(type.getClassName().lastIndexOf('.') + 1))
        .collect(Collectors.joining(",", "(", ")"));
  }

  /** The class with this method under another name. */
  private static UnaryOperator<byte[]> without(String method) {
    return bytes -> {
      ClassWriter writer = new ClassWriter(0);
      new ClassReader(bytes)
          .accept(
              new ClassVisitor(OpenedClassReader.ASM_API, writer) {
                @Override
                public MethodVisitor visitMethod(
                    int access, String name, String descriptor, String signature, String[] thrown) {
                  String now = name.equals(method) ? "renamed" : name;
                  return super.visitMethod(access, now, descriptor, signature, thrown);
                }
              },
              0);
      return writer.toByteArray();
    };
  }
}
