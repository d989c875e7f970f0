package io.tidegate.agent.runtime;

import java.io.PrintStream;
import java.time.LocalDateTime;
import java.time.ZoneId;
import java.time.format.DateTimeFormatter;
import java.util.Locale;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The agent's log: lines on standard error where {@code TIDEGATE_LOG} names a level, and otherwise
 * the logger {@code tidegate_agent} of the application, as its Kafka clients have theirs.
 */
abstract class AgentLog {
  /** How much a line matters. */
  enum Level {
    DEBUG,
    INFO,
    WARNING,
    ERROR
  }

  static final String NAME = "tidegate_agent";

  private static final DateTimeFormatter TIME =
      DateTimeFormatter.ofPattern("uuuu-MM-dd HH:mm:ss,SSS", Locale.ROOT);

  /** As the settings say. */
  static AgentLog of(Settings settings) {
    return settings.logLevel().isPresent()
        ? to(System.err, settings.logLevel().get())
        : to(LoggerFactory.getLogger(NAME));
  }

  /** To a logger of the application's. */
  static AgentLog to(Logger logger) {
    return new OfTheApplication(logger);
  }

  /** Lines of this level and above, in a stream. */
  static AgentLog to(PrintStream stream, Level least) {
    return new AgentLog() {
      @Override
      void log(Level level, String message) {
        if (level.compareTo(least) >= 0) {
          stream.println(
              LocalDateTime.now(ZoneId.systemDefault()).format(TIME)
                  + " "
                  + level
                  + " "
                  + NAME
                  + ": "
                  + message);
        }
      }
    };
  }

  /** One line. */
  abstract void log(Level level, String message);

  void debug(String message) {
    log(Level.DEBUG, Quoted.inOneLine(message));
  }

  void info(String message) {
    log(Level.INFO, Quoted.inOneLine(message));
  }

  void warning(String message) {
    log(Level.WARNING, Quoted.inOneLine(message));
  }

  void error(String message) {
    log(Level.ERROR, Quoted.inOneLine(message));
  }

  private static final class OfTheApplication extends AgentLog {
    private final Logger logger;

    private OfTheApplication(Logger logger) {
      this.logger = logger;
    }

    @Override
    void log(Level level, String message) {
      try {
        write(level, message);
      } catch (RuntimeException | LinkageError failed) {
        // As of an appender that an application has set to throw. Whoever logs here has to go on:
        // a partition half closed, or the thread that reads the control topic.
        return;
      }
    }

    private void write(Level level, String message) {
      switch (level) {
        case DEBUG:
          logger.debug(message);
          break;
        case INFO:
          logger.info(message);
          break;
        case WARNING:
          logger.warn(message);
          break;
        case ERROR:
          logger.error(message);
          break;
      }
    }
  }
}
