package quarkus;

import driven.DrivenApplication;
import driven.DrivenApplication.Kind;
import driven.DrivenConsumer;
import io.quarkus.runtime.annotations.QuarkusMain;
import java.io.IOException;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** The driven application, packaged by Quarkus, in whose class loaders it runs; one of its members may be a {@link Listener}. */
@QuarkusMain
public final class QuarkusApplication {
  /** Ends with standard input. */
  public static void main(String... arguments) throws IOException {
    Map<String, Kind> kinds = new ConcurrentHashMap<>();
    kinds.put("consumer", DrivenConsumer::start);
    kinds.put("quarkus-listener", Listener::start);
    DrivenApplication.run(kinds);
  }
}
