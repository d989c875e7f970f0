package io.tidegate.agent.core;

/** Who is told what a person may want to find in the application's log. */
public interface Notices {
  /** Tells nobody. */
  Notices NONE =
      new Notices() {
        @Override
        public void info(String message) {}

        @Override
        public void warn(String message) {}
      };

  /** Something happened as it should. */
  void info(String message);

  /** Something a person should know of. */
  void warn(String message);
}
