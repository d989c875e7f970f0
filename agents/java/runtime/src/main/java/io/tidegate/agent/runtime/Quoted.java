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
    String shown = inOneLine(text.substring(0, Math.min(MOST, text.length())));
    return text.length() > MOST ? shown + "…" : shown;
  }

  /** Without what would begin another line, or is a command to a terminal. */
  static String inOneLine(String text) {
    StringBuilder shown = new StringBuilder(text);
    for (int i = 0; i < text.length(); i++) {
      if (!isShown(text.charAt(i))) {
        shown.setCharAt(i, ' ');
      }
    }
    return shown.toString();
  }

  private static boolean isShown(char c) {
    int type = Character.getType(c);
    return !Character.isISOControl(c)
        && type != Character.LINE_SEPARATOR
        && type != Character.PARAGRAPH_SEPARATOR;
  }
}
