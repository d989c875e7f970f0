package io.tidegate.agent.runtime;

import java.util.HashSet;
import java.util.Set;

/** Troubles in the process's log: by a name each, said again only after it was over. */
final class Troubles {
  private final AgentLog log;
  private final Set<String> said = new HashSet<>();

  Troubles(AgentLog log) {
    this.log = log;
  }

  void say(String what, String message) {
    synchronized (said) {
      if (!said.add(what)) {
        return;
      }
    }
    log.warning(message);
  }

  void over(String what, String message) {
    synchronized (said) {
      if (!said.remove(what)) {
        return;
      }
    }
    log.info(message);
  }

  /** Say it again when it comes, and not that it is over. */
  void forget(String what) {
    synchronized (said) {
      said.remove(what);
    }
  }
}
