package io.tidegate.agent.runtime;

import java.util.Locale;
import java.util.Optional;
import java.util.function.UnaryOperator;

/**
 * Where settings come from: the environment, or the JVM's system properties, which win. The
 * property of {@code TIDEGATE_CONTROL_TOPIC} is {@code tidegate.control.topic}.
 */
final class Environment {
  private final UnaryOperator<String> variables;
  private final UnaryOperator<String> properties;

  /**
   * @param variables gives a variable's value, or null
   * @param properties gives a property's value, or null
   */
  Environment(UnaryOperator<String> variables, UnaryOperator<String> properties) {
    this.variables = variables;
    this.properties = properties;
  }

  /** This process's. */
  static Environment ofThisProcess() {
    return new Environment(System::getenv, Environment::property);
  }

  /** What is said under this name, without the white space around it; empty: nothing. */
  Optional<String> get(String name) {
    return exactly(name).map(String::trim).filter(said -> !said.isEmpty());
  }

  /** What is said under this name, to the letter; empty: nothing. */
  Optional<String> exactly(String name) {
    String value = properties.apply(propertyOf(name));
    return Optional.ofNullable(value == null ? variables.apply(name) : value)
        .filter(said -> !said.isEmpty());
  }

  /** How a message calls it: as it was said. */
  String spelled(String name) {
    return properties.apply(propertyOf(name)) == null ? name : propertyOf(name);
  }

  private static String propertyOf(String name) {
    return name.toLowerCase(Locale.ROOT).replace('_', '.');
  }

  private static String property(String name) {
    try {
      return System.getProperty(name);
    } catch (SecurityException forbidden) {
      return null;
    }
  }
}
