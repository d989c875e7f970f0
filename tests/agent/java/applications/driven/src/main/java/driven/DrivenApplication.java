package driven;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * An ordinary application whose consumers do what the lines of standard input say; it knows nothing of an agent.
 *
 * <p>A command is {@code {"id": 1, "do": "open", "member": "c0", ...}}; each is answered by {@code {"id": 1, "answer":
 * ...}} or {@code {"id": 1, "error": "..."}} on standard output, in any order. What a consumer does by itself is told
 * there as well: {@link Out}. {@code open} says how the consumer is made ({@link Job}); a consumer's other commands are
 * in {@link DrivenConsumer}. The process ends when standard input does, once all consumers are closed.
 */
public final class DrivenApplication {
  /** Makes a member of one kind; the first thing that it does must not take long. */
  public interface Kind {
    /** A started member. */
    Member open(Job job, Out out);
  }

  private static final ObjectMapper JSON = new ObjectMapper();

  private final Map<String, Kind> kinds;
  private final Map<String, Member> members = new ConcurrentHashMap<>();
  private final ExecutorService asking =
      Executors.newCachedThreadPool(
          task -> {
            Thread thread = new Thread(task, "asking");
            thread.setDaemon(true);
            return thread;
          });
  private final Out out = new Out();

  private DrivenApplication(Map<String, Kind> kinds) {
    this.kinds = kinds;
  }

  public static void main(String[] arguments) throws IOException {
    Map<String, Kind> kinds = new ConcurrentHashMap<>();
    kinds.put("consumer", DrivenConsumer::start);
    run(kinds);
  }

  /** Follows the commands until standard input ends, and ends the process. */
  public static void run(Map<String, Kind> kinds) throws IOException {
    DrivenApplication application = new DrivenApplication(kinds);
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    application.out.tell("ready", "");
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      JsonNode command = JSON.readTree(line);
      application.asking.execute(() -> application.obey(command));
    }
    boolean closed = true;
    for (Member member : application.members.values()) {
      try {
        member.stop();
      } catch (Exception failed) {
        closed = false;
        failed.printStackTrace();
      }
    }
    System.exit(closed ? 0 : 1); // a client's own threads must not keep a stopped process alive
  }

  private void obey(JsonNode command) {
    long id = command.get("id").asLong();
    try {
      out.answer(id, answer(command));
    } catch (Throwable failed) { // a linkage error is an answer as well: old methods are gone in newer clients
      out.failed(id, failed);
    }
  }

  private Object answer(JsonNode command) throws Exception {
    String name = command.get("member").asText();
    String what = command.get("do").asText();
    if (what.equals("open")) {
      Job job = new Job(name, command);
      members.put(name, kinds.get(job.kind).open(job, out));
      return null;
    }
    Member member = members.get(name);
    if (!what.equals("stop")) {
      return member.ask(what, command);
    }
    members.remove(name);
    member.stop();
    return null;
  }
}
