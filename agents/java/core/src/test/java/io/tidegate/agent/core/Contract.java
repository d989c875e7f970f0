package io.tidegate.agent.core;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializationFeature;
import com.fasterxml.jackson.databind.json.JsonMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Set;
import java.util.TreeSet;

/** The files of {@code agents/contract}. */
final class Contract {
  private static final ObjectMapper JSON =
      JsonMapper.builder().enable(SerializationFeature.ORDER_MAP_ENTRIES_BY_KEYS).build();

  private Contract() {}

  static JsonNode vectors() {
    return read("vectors.json");
  }

  static JsonNode traces() {
    return read("traces.json");
  }

  private static JsonNode read(String name) {
    Path folder = Path.of(System.getProperty("contract"));
    try {
      return JSON.readTree(Files.readString(folder.resolve(name)));
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  /** Its one form: sorted members, no white space; of equal values it is equal. */
  static String canonical(Object value) {
    try {
      return JSON.writeValueAsString(JSON.convertValue(value, Object.class));
    } catch (JsonProcessingException error) {
      throw new UncheckedIOException(error);
    }
  }

  /** The bytes of a text; null of null. */
  static byte[] bytes(JsonNode text) {
    return text == null || text.isNull() ? null : text.textValue().getBytes(StandardCharsets.UTF_8);
  }

  /** Fails on members of an object that this test does not know: it would pass them over. */
  static void requireOnly(JsonNode object, Set<String> known) {
    Set<String> unknown = new TreeSet<>();
    object.fieldNames().forEachRemaining(unknown::add);
    unknown.removeAll(known);
    if (!unknown.isEmpty()) {
      throw new AssertionError("nobody here knows " + unknown + " of " + object);
    }
  }
}
