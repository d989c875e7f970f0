package driven;

import com.fasterxml.jackson.databind.JsonNode;

/** Something that reads topics in this process; called from any thread. */
public interface Member {
  /** Does what the command says, and returns its answer. */
  Object ask(String what, JsonNode command) throws Exception;

  /** Ends as an application does that knows how to; returns once it has ended. */
  void stop() throws Exception;
}
