package io.tidegate.agent.core;

/**
 * What the contract's texts may be, by the name of their member. Lengths count Unicode characters.
 */
enum TextForm {
  GROUP("group", 1, 255, "1 to 255 characters, none of them a control character"),
  TOPIC(
      "topic",
      1,
      249,
      "a topic's name: 1 to 249 letters, digits, '.', '_' and '-', and not '.' or '..'"),
  TOPIC_ID("topic_id", 1, 22, "a topic id: at most 22 letters, digits, '_' and '-'"),
  HOLDER("holder", 1, 1024, "1 to 1024 characters"),
  MEMBER("member", 0, 1024, "at most 1024 characters"),
  REASON("reason", 0, 1024, "at most 1024 characters");

  private final String member;
  private final int shortest;
  private final int longest;
  private final String words;

  TextForm(String member, int shortest, int longest, String words) {
    this.member = member;
    this.shortest = shortest;
    this.longest = longest;
    this.words = words;
  }

  /** The name of the member. */
  String member() {
    return member;
  }

  /** What it may be, for a message. */
  String words() {
    return words;
  }

  /** Whether a text is of this form. Half of a surrogate pair is in none. */
  boolean accepts(String text) {
    int length = text.codePointCount(0, text.length());
    if (length < shortest || length > longest) {
      return false;
    }
    if (this == TOPIC && (text.equals(".") || text.equals(".."))) {
      return false;
    }
    return text.codePoints().allMatch(c -> mayHave(c) && !isSurrogate(c));
  }

  private boolean mayHave(int c) {
    switch (this) {
      case GROUP:
        return c > 0x1f && c != 0x7f;
      case TOPIC:
        return isLetterOrDigit(c) || c == '.' || c == '_' || c == '-';
      case TOPIC_ID:
        return isLetterOrDigit(c) || c == '_' || c == '-';
      default:
        return true;
    }
  }

  private static boolean isSurrogate(int c) {
    return c >= Character.MIN_SURROGATE && c <= Character.MAX_SURROGATE;
  }

  private static boolean isLetterOrDigit(int c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  }
}
