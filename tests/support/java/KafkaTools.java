import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's command line tools in one JVM, one call after the other. Each line of standard input is a JSON array: the main
 * class and its arguments; each line of standard output answers one: {"code": 0, "out": "", "err": ""}.
 */
public final class KafkaTools {
    private static final ObjectMapper JSON = new ObjectMapper();

    private KafkaTools() {}

    public static void main(String[] arguments) throws IOException, InterruptedException, ExecutionException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = System.out;
        PrintStream errors = System.err;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode words = JSON.readTree(line);
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
            int code = call(words);
            System.setOut(answers);
            System.setErr(errors);
            answers.println(JSON.createObjectNode()
                    .put("code", code)
                    .put("out", out.toString(StandardCharsets.UTF_8))
                    .put("err", err.toString(StandardCharsets.UTF_8)));
        }
        Runtime.getRuntime().halt(0); // some calls still stand where they ended
    }

    /** The exit code of one call, as of a JVM of its own. */
    private static int call(JsonNode words) throws InterruptedException, ExecutionException {
        CompletableFuture<Integer> code = new CompletableFuture<>();
        Exit.Procedure end = (status, message) -> {
            code.complete(status);
            // After an exit nothing more is done, not even what stands in a finally.
            while (true) {
                try {
                    Thread.sleep(Long.MAX_VALUE);
                } catch (InterruptedException ignored) {
                    // nobody means it
                }
            }
        };
        Exit.setExitProcedure(end);
        Exit.setHaltProcedure(end);
        Thread caller = new Thread(() -> {
            try {
                run(words);
                code.complete(0);
            } catch (Throwable thrown) {
                System.err.print("Exception in thread \"main\" ");
                thrown.printStackTrace();
                code.complete(1);
            }
        }, "main");
        caller.setDaemon(true);
        caller.start();
        return code.get();
    }

    private static void run(JsonNode words) throws Throwable {
        String[] arguments = new String[words.size() - 1];
        for (int i = 0; i < arguments.length; i++) {
            arguments[i] = words.get(i + 1).asText();
        }
        Method main = Class.forName(words.get(0).asText()).getMethod("main", String[].class);
        try {
            main.invoke(null, (Object) arguments);
        } catch (InvocationTargetException thrown) {
            throw thrown.getCause();
        }
    }
}
