package io.tidegate.agent.core;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonFactoryBuilder;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.JsonParseException;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.core.StreamReadConstraints;
import com.fasterxml.jackson.core.StreamReadFeature;
import com.fasterxml.jackson.core.json.JsonWriteFeature;
import com.fasterxml.jackson.core.util.JsonRecyclerPools;
import java.io.IOException;
import java.io.StringWriter;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CodingErrorAction;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/** One JSON object of a key or a value. Of its members only texts and whole numbers are kept. */
final class JsonObject {
  /** Of a key, and of a value. */
  static final int MOST_BYTES = 16_384;

  /** How deep the objects and lists of a member that nobody knows may lie in one another. */
  private static final int DEEPEST = 1_000;

  /**
   * Names are neither interned nor remembered, and no buffers are kept: what is read here was
   * written by others, and this runs in the threads of other people's processes.
   */
  private static final JsonFactory JSON =
      new JsonFactoryBuilder()
          .disable(JsonFactory.Feature.INTERN_FIELD_NAMES)
          .disable(JsonFactory.Feature.CANONICALIZE_FIELD_NAMES)
          .enable(StreamReadFeature.STRICT_DUPLICATE_DETECTION)
          .disable(JsonWriteFeature.WRITE_HEX_UPPER_CASE)
          .recyclerPool(JsonRecyclerPools.nonRecyclingPool())
          .streamReadConstraints(
              StreamReadConstraints.builder()
                  .maxNestingDepth(DEEPEST)
                  .maxStringLength(MOST_BYTES)
                  .maxNameLength(MOST_BYTES)
                  .maxNumberLength(MOST_BYTES)
                  .build())
          .build();

  /** Whatever is neither a text nor a whole number of 64 bits, as it is called in a message. */
  private enum Other {
    TRUE("true"),
    FALSE("false"),
    NULL("null"),
    FRACTION("a number that is not whole"),
    LARGE_NUMBER("a number beyond 64 bits"),
    OBJECT("an object"),
    LIST("a list");

    private final String words;

    Other(String words) {
      this.words = words;
    }

    @Override
    public String toString() {
      return words;
    }
  }

  /** How the members of an object are written. */
  interface Members {
    void write(JsonGenerator to) throws IOException;
  }

  private final Map<String, Object> members;

  private JsonObject(Map<String, Object> members) {
    this.members = members;
  }

  /** Raises {@link Unreadable} for anything but one JSON object in UTF-8. */
  static JsonObject read(byte[] data, String what) throws Unreadable {
    if (data.length > MOST_BYTES) {
      throw new Unreadable(
          "its " + what + " has " + data.length + " bytes, more than " + MOST_BYTES);
    }
    // Not left to Jackson: from bytes it takes UTF-16 and UTF-32 as well, and surrogates.
    try (JsonParser parser = JSON.createParser(plainlyEscaped(characters(data)))) {
      if (parser.nextToken() != JsonToken.START_OBJECT) {
        throw new Unreadable("its " + what + " is no JSON object");
      }
      Map<String, Object> members = new HashMap<>();
      while (parser.nextToken() != JsonToken.END_OBJECT) {
        String name = parser.currentName();
        parser.nextToken();
        members.put(name, value(parser));
      }
      if (parser.nextToken() != null) {
        throw new Unreadable("its " + what + " goes on after a JSON object");
      }
      return new JsonObject(members);
    } catch (JsonProcessingException error) {
      throw new Unreadable("its " + what + " is not JSON: " + shown(error.getOriginalMessage()));
    } catch (IOException error) {
      throw new Unreadable("its " + what + " is not UTF-8");
    }
  }

  /** One object without white space; its members must be given in their order. */
  static byte[] write(Members members) {
    StringWriter text = new StringWriter();
    try (JsonGenerator to = JSON.createGenerator(text)) {
      to.writeStartObject();
      members.write(to);
      to.writeEndObject();
    } catch (IOException impossible) {
      throw new UncheckedIOException(impossible);
    }
    return text.toString().getBytes(StandardCharsets.UTF_8);
  }

  private static char[] characters(byte[] data) throws IOException {
    CharBuffer decoded =
        StandardCharsets.UTF_8
            .newDecoder()
            .onMalformedInput(CodingErrorAction.REPORT)
            .onUnmappableCharacter(CodingErrorAction.REPORT)
            .decode(ByteBuffer.wrap(data));
    char[] characters = new char[decoded.remaining()];
    decoded.get(characters);
    return characters;
  }

  /**
   * Of characters beyond 8 bits Jackson takes those for hexadecimal digits whose last 8 are one.
   */
  private static char[] plainlyEscaped(char[] text) throws JsonParseException {
    for (int at = 0; at + 1 < text.length; at++) {
      if (text[at] == '\\') {
        at++;
        int end = text[at] == 'u' ? Math.min(at + 4, text.length - 1) : at;
        for (int digit = at; digit <= end; digit++) {
          if (text[digit] > 0x7f) {
            throw new JsonParseException(null, "an escape is no hexadecimal number");
          }
        }
      }
    }
    return text;
  }

  private static Object value(JsonParser parser) throws IOException {
    switch (parser.currentToken()) {
      case VALUE_STRING:
        return parser.getText();
      case VALUE_NUMBER_INT:
        return wholeNumber(parser.getText());
      case VALUE_NUMBER_FLOAT:
        return Other.FRACTION;
      case VALUE_TRUE:
        return Other.TRUE;
      case VALUE_FALSE:
        return Other.FALSE;
      case VALUE_NULL:
        return Other.NULL;
      case START_OBJECT:
        parser.skipChildren();
        return Other.OBJECT;
      default:
        parser.skipChildren();
        return Other.LIST;
    }
  }

  private static Object wholeNumber(String digits) {
    try {
      return Long.valueOf(digits);
    } catch (NumberFormatException tooLarge) {
      return Other.LARGE_NUMBER;
    }
  }

  /** The text of this form. */
  String text(TextForm form) throws Unreadable {
    Object value = members.get(form.member());
    if (!(value instanceof String) || !form.accepts((String) value)) {
      throw new Unreadable(form.member() + " must be " + form.words() + ", not " + shown(value));
    }
    return (String) value;
  }

  /** The whole number of this name. */
  long number(String name, long least, long most) throws Unreadable {
    Object value = members.get(name);
    if (!(value instanceof Long) || (Long) value < least || (Long) value > most) {
      throw new Unreadable(
          name + " must be a whole number from " + least + " to " + most + ", not " + shown(value));
    }
    return (Long) value;
  }

  /** The text of this name as it is, or "" where there is none: for a comparison. */
  String word(String name) {
    Object value = members.get(name);
    return value instanceof String ? (String) value : "";
  }

  /** Whether it says true, not "true" or 1. */
  boolean isTrue(String name) {
    return members.get(name) == Other.TRUE;
  }

  /** Whether it says nothing, or null. */
  boolean isMissing(String name) {
    Object value = members.get(name);
    return value == null || value == Other.NULL;
  }

  /** For a message, whatever it is and however large: visible ASCII, and not much of it. */
  private static String shown(Object value) {
    if (value == null) {
      return "nothing";
    }
    StringBuilder text = new StringBuilder();
    value
        .toString()
        .chars()
        .limit(120)
        .forEach(c -> text.append(c >= ' ' && c < 0x7f ? (char) c : '?'));
    return text.toString();
  }
}
