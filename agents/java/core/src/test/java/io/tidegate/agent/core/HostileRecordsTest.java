package io.tidegate.agent.core;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Whoever may write to the topics may write anything: it is read, or it is {@link Unreadable}. */
class HostileRecordsTest {
  private static final byte[] KEY =
      bytes("{\"group\":\"payments\",\"kind\":\"ack\",\"partition\":3,\"topic\":\"orders\"}");
  private static final byte[] VALUE = bytes("{\"epoch\":1,\"member\":\"m\",\"offset\":1}");
  private static final String[] PIECES = {
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "\\",
    "\\u",
    "\\ud800",
    "\\udc00",
    "null",
    "true",
    "NaN",
    "Infinity",
    "-",
    "0",
    "1e999",
    "-0",
    "9223372036854775808",
    "\"kind\"",
    "\"ack\"",
    "\u0000",
    "\ufeff",
    "\ud83d\ude00",
    "/*",
    "//",
    "'",
    "\r",
    "\t",
    "\u2028"
  };

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  private static List<byte[]> corpus() {
    List<byte[]> found = new ArrayList<>();
    for (JsonNode section : Contract.vectors()) {
      for (JsonNode vector : section) {
        for (String part : new String[] {"key", "value"}) {
          byte[] data = Contract.bytes(vector.get(part));
          if (data != null) {
            found.add(data);
          }
        }
      }
    }
    return found;
  }

  /** Reads it or finds it unreadable; a key that is read is the one that would be written. */
  private static void decode(byte[] key, byte[] value) {
    try {
      assertArrayEquals(key, RecordCodec.encodeKey(RecordCodec.decode(key, value).key()));
    } catch (Unreadable unreadable) {
      String message = unreadable.getMessage();
      assertTrue(message.length() < 300, message);
      assertTrue(message.chars().allMatch(c -> c >= ' ' && c < 0x7f), message);
    }
  }

  private static byte[] mutated(byte[] data, Random random) {
    byte[] piece = bytes(PIECES[random.nextInt(PIECES.length)]);
    int at = random.nextInt(data.length + 1);
    int cut = random.nextInt(4) == 0 ? random.nextInt(data.length - at + 1) : 0;
    byte[] noise = new byte[random.nextInt(3)];
    random.nextBytes(noise);
    byte[] middle = random.nextBoolean() ? piece : noise;
    byte[] result = Arrays.copyOf(data, data.length - cut + middle.length);
    System.arraycopy(middle, 0, result, at, middle.length);
    System.arraycopy(data, at + cut, result, at + middle.length, data.length - at - cut);
    return result;
  }

  @Test
  void mutationsOfRecordsAreReadOrUnreadable() {
    Random random = new Random(18);
    List<byte[]> corpus = corpus();
    assertTrue(corpus.size() > 200);
    for (int round = 0; round < 60_000; round++) {
      byte[] data = corpus.get(random.nextInt(corpus.size()));
      for (int times = random.nextInt(4); times >= 0; times--) {
        data = mutated(data, random);
      }
      decode(data, VALUE);
      decode(KEY, data);
    }
  }

  @Test
  void noiseIsReadOrUnreadable() {
    Random random = new Random(1);
    for (int round = 0; round < 20_000; round++) {
      byte[] data = new byte[random.nextInt(200)];
      random.nextBytes(data);
      decode(data, VALUE);
      decode(KEY, data);
      StringBuilder text = new StringBuilder("{");
      for (int pieces = random.nextInt(30); pieces > 0; pieces--) {
        text.append(PIECES[random.nextInt(PIECES.length)]);
      }
      decode(bytes(text.toString()), VALUE);
      decode(KEY, bytes(text.toString()));
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"[", "{\"a\":", "{\"epoch\":1,\"member\":\"m\",\"offset\":1,\"x\":["})
  void whatIsNestedDeeplyIsUnreadable(String opening) {
    String deep = opening + "[".repeat(RecordCodec.MOST_BYTES - opening.length());
    assertThrows(Unreadable.class, () -> RecordCodec.decode(KEY, bytes(deep)));
    assertThrows(Unreadable.class, () -> RecordCodec.decode(bytes(deep), VALUE));
  }

  @Test
  void whatIsNestedDeeplyAndClosedAgainIsUnreadableToo() {
    String lists = "[".repeat(8_000) + "]".repeat(8_000);
    byte[] value = bytes("{\"epoch\":1,\"member\":\"m\",\"offset\":1,\"x\":" + lists + "}");
    assertThrows(Unreadable.class, () -> RecordCodec.decode(KEY, value));
  }

  @Test
  void namesOfOneHashAreJustNames() throws Unreadable {
    StringBuilder value = new StringBuilder("{\"epoch\":1,\"member\":\"m\",\"offset\":1");
    for (int number = 0; value.length() < RecordCodec.MOST_BYTES - 50; number++) {
      value.append(",\"");
      for (int bit = 0; bit < 10; bit++) {
        value.append((number >> bit & 1) == 0 ? "Aa" : "BB");
      }
      value.append("\":0");
    }
    RecordCodec.decode(KEY, bytes(value + "}"));
  }
}
