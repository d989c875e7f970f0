package io.tidegate.agent.bridge;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.BiConsumer;

/** What has gone wrong in the agent itself: told once for each place, and kept from the client. */
public final class Troubles {
  private static final Set<String> TOLD = ConcurrentHashMap.newKeySet();

  private static volatile BiConsumer<String, Throwable> teller = Troubles::toStandardError;

  private Troubles() {}

  /** Tell it here from now on. */
  public static void tellBy(BiConsumer<String, Throwable> newTeller) {
    teller = newTeller;
  }

  /** This went wrong there. Never throws. */
  public static void tell(String where, Throwable trouble) {
    try {
      if (TOLD.add(where)) {
        teller.accept(where, trouble);
      }
    } catch (Throwable again) {
      // There is nobody left to tell, and the application must go on.
    }
  }

  private static void toStandardError(String where, Throwable trouble) {
    System.err.println("[tidegate] the agent failed in " + where + ": " + trouble);
  }
}
