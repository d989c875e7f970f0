package io.tidegate.agent.runtime;

/**
 * A setting has a value that means nothing; the message names it, its value, and which values it
 * may have.
 */
public final class SettingsException extends Exception {
  private static final long serialVersionUID = 1L;

  SettingsException(String message) {
    super(message);
  }
}
