package io.tidegate.agent.runtime;

/** Somebody else's text in a message: in quotes, in one line, and not too long. */
final class Quoted {
  private static final int MOST = 200;

  private Quoted() {}

  static String of(Object value) {
    return "'" + plain(String.valueOf(value)) + "'";
  }

  /** The same without quotes. */
  static String plain(String text) {
    StringBuilder shown = new StringBuilder();
    for (int i = 0; i < text.length() && i < MOST; i++) {
      char c = text.charAt(i);
      shown.append(Character.isISOControl(c) ? ' ' : c);
    }
    return text.length() > MOST ? shown.append("…").toString() : shown.toString();
  }
}
