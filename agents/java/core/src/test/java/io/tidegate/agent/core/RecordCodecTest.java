package io.tidegate.agent.core;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.nio.charset.Charset;
import java.nio.charset.StandardCharsets;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** What the vectors cannot say of records, for they are texts themselves. */
class RecordCodecTest {
  private static final String KEY =
      "{\"group\":\"payments\",\"kind\":\"ack\",\"partition\":3,\"topic\":\"orders\"}";
  private static final String VALUE = "{\"epoch\":1,\"member\":\"m\",\"offset\":1}";

  private static byte[] utf8(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  @ParameterizedTest
  @ValueSource(strings = {"UTF-16", "UTF-16LE", "UTF-16BE", "UTF-32"})
  void onlyUtf8IsRead(String charset) {
    byte[] value = VALUE.getBytes(Charset.forName(charset));
    assertThrows(Unreadable.class, () -> RecordCodec.decode(utf8(KEY), value));
  }

  @Test
  void aByteOrderMarkIsNoJson() {
    assertThrows(Unreadable.class, () -> RecordCodec.decode(utf8(KEY), utf8("\ufeff" + VALUE)));
  }

  @Test
  void halfACharacterInBytesIsNoUtf8() {
    byte[] value = VALUE.getBytes(StandardCharsets.ISO_8859_1);
    int member = VALUE.indexOf("\"m\"") + 1;
    // U+D800 as three bytes, which no UTF-8 has
    byte[] half = new byte[value.length + 2];
    System.arraycopy(value, 0, half, 0, member);
    half[member] = (byte) 0xed;
    half[member + 1] = (byte) 0xa0;
    half[member + 2] = (byte) 0x80;
    System.arraycopy(value, member + 1, half, member + 3, value.length - member - 1);
    assertThrows(Unreadable.class, () -> RecordCodec.decode(utf8(KEY), half));
  }

  @ParameterizedTest
  @ValueSource(strings = {"{} {}", "{}x", "{},", "", " ", "{", "[]", "{}]"})
  void aValueIsOneObject(String value) {
    byte[] clock = utf8("{\"kind\":\"clock\"}");
    assertThrows(Unreadable.class, () -> RecordCodec.decode(clock, utf8(value)));
  }

  @Test
  void aHolderMayHaveControlCharactersAndIsWrittenWithSmallHexDigits() throws Unreadable {
    HoldKey key =
        new HoldKey(new GateId("g", new Partition("t", 0)), "\u001f\n\b\f\r\t/\u007f\u2028");
    byte[] written = RecordCodec.encodeKey(key);
    assertEquals(
        "{\"group\":\"g\",\"holder\":\"\\u001f\\n\\b\\f\\r\\t/\u007f\u2028\",\"kind\":\"hold\","
            + "\"partition\":0,\"topic\":\"t\"}",
        new String(written, StandardCharsets.UTF_8));
    assertEquals(key, RecordCodec.decode(written, null).key());
    byte[] large = utf8(new String(written, StandardCharsets.UTF_8).replace("001f", "001F"));
    assertThrows(Unreadable.class, () -> RecordCodec.decode(large, null));
  }

  @Test
  void anAckIsWrittenInSortedOrder() {
    assertArrayEquals(utf8(VALUE), RecordCodec.encodeAck(new Ack(1, 1, "m")));
  }

  @Test
  void minusZeroIsZeroAsAnywhere() throws Unreadable {
    DecodedRecord record =
        RecordCodec.decode(utf8(KEY), utf8("{\"epoch\":-0,\"member\":\"\",\"offset\":-1}"));
    assertEquals(new Ack(0, Offsets.NONE, ""), record.value().orElseThrow());
  }
}
