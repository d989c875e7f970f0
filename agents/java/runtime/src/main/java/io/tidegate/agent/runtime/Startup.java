package io.tidegate.agent.runtime;

/** What is decided when the JVM starts. Needs none of Kafka's classes, nor a logging library. */
public final class Startup {
  private Startup() {}

  /**
   * Whether consumers of this process are to be managed. A setting that means nothing is named on
   * standard error, and the agent stays out.
   *
   * @throws SettingsException instead of that where {@code TIDEGATE_STRICT} is on: the process is
   *     not to start, and the message says so
   */
  public static boolean isWanted() throws SettingsException {
    return isWanted(Environment.ofThisProcess(), AgentLog.to(System.err, AgentLog.Level.DEBUG));
  }

  static boolean isWanted(Environment environment, AgentLog log) throws SettingsException {
    try {
      if (!Settings.isOn(environment)) {
        return false;
      }
      Settings.read(environment).complaints().forEach(log::error);
      return true;
    } catch (SettingsException wrong) {
      if (Settings.isStrict(environment)) {
        String strict = environment.spelled(Settings.STRICT);
        throw new SettingsException(
            "Tidegate refuses to start this process, for "
                + strict
                + " is on: "
                + wrong.getMessage());
      }
      log.error("the agent stays out: " + wrong.getMessage());
      return false;
    }
  }
}
