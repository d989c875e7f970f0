package io.tidegate.agent.runtime;

import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * The links of this class loader: shared by those who reach one cluster in one way; the last one
 * that lets go ends its threads.
 */
final class Links {
  private static final Map<List<Object>, Shared> LINKS = new HashMap<>();

  /** A link and how many have it. */
  private static final class Shared {
    private final ControlLink link;
    private int leases;

    Shared(ControlLink link) {
      this.link = link;
    }
  }

  /** Somebody's share of a link, until it is closed. */
  static final class Lease implements AutoCloseable {
    private final List<Object> key;
    private final ControlLink link;
    private boolean isClosed;

    private Lease(List<Object> key, ControlLink link) {
      this.key = key;
      this.link = link;
    }

    Link link() {
      return link;
    }

    /** Let go. Waits for nothing, and does nothing the second time. */
    @Override
    public void close() {
      synchronized (LINKS) {
        if (isClosed) {
          return;
        }
        isClosed = true;
        Shared shared = LINKS.get(key);
        shared.leases--;
        if (shared.leases == 0) {
          LINKS.remove(key);
          shared.link.close();
        }
      }
    }
  }

  private Links() {}

  /**
   * A link for a consumer of the application. To be called on the thread that makes the consumer,
   * as its context class loader is what finds the classes that settings name.
   *
   * @param originals of its {@code ConsumerConfig}
   */
  static Lease lease(Map<String, ?> originals, Settings settings) {
    Connection connection =
        Connection.of(originals, Thread.currentThread().getContextClassLoader());
    List<Object> key = Arrays.asList(connection, settings.controlTopic(), settings.ackTopic());
    synchronized (LINKS) {
      Shared shared = LINKS.computeIfAbsent(key, absent -> new Shared(link(connection, settings)));
      shared.leases++;
      return new Lease(key, shared.link);
    }
  }

  private static ControlLink link(Connection connection, Settings settings) {
    return new ControlLink(
        new OwnClients(connection),
        connection.loader(),
        settings.controlTopic(),
        settings.ackTopic(),
        AgentLog.of(settings),
        Ticks.SYSTEM);
  }
}
